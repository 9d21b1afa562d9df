//! A directory block: every entry, and the search for a name.
#![no_main]

use ferofs_format::dirent::DirBlock;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let [len, data @ ..] = data else { return };
    let (name, block) = data.split_at(usize::from(*len).min(data.len()));
    let Ok(block) = DirBlock::parse(block) else { return };
    let mut index = 0;
    while let Some(entry) = block.get(index) {
        index += 1;
        if let Ok(entry) = entry {
            let _ = block.find(entry.name);
        }
    }
    let _ = block.find(name);
});
