//! Extended attributes: a single entry, an inode's region, the table of long prefixes.
#![no_main]

use ferofs_format::xattr::{Entry, LongPrefix, Region};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let [count, data @ ..] = data else { return };
    let table = LongPrefix::parse_table(data, *count).unwrap_or_default();
    let _ = Entry::size_from_header(data);
    if let Ok(entry) = Entry::parse(data) {
        let _ = entry.full_name(&table);
        let mut bytes = Vec::new();
        if entry.write(&mut bytes).is_ok() {
            assert_eq!(Entry::parse(&bytes).expect("what was written parses"), entry);
        }
    }
    if let Ok(region) = Region::parse(data) {
        let _ = format!("{region:?}");
    }
});
