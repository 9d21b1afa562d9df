//! Opens an EROFS image in a web page. The page (index.html) copies the image's bytes to the memory
//! of this module, and gets the list of its files as text. Functions pass addresses and lengths, so
//! the page needs no generated code.

use std::fmt::Write as _;

use ferofs_read::{FileType, Image, Result};

/// Bytes of a file that the list shows.
const SHOWN: usize = 60;

/// Allocates memory for an image of `len` bytes, which the page fills.
#[unsafe(no_mangle)]
pub extern "C" fn allocate(len: usize) -> *mut u8 {
    Box::leak(vec![0; len].into_boxed_slice()).as_mut_ptr()
}

/// Lists the image of `len` bytes at `image`, which [`allocate`] returned and which must not be
/// used again. Returns the address of the text; its length is the number before it.
///
/// # Safety
/// `image` and `len` must be those of one call of [`allocate`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn list(image: *mut u8, len: usize) -> *const u8 {
    // SAFETY: the page promises that `allocate` leaked this slice, and that nothing else uses it.
    let image = unsafe { Box::from_raw(std::ptr::slice_from_raw_parts_mut(image, len)) };
    let text = text_of(image).unwrap_or_else(|error| format!("error: {error}\n"));
    let mut result = u32::try_from(text.len()).unwrap_or(0).to_le_bytes().to_vec();
    result.extend_from_slice(text.as_bytes());
    // The page reads it once and then goes away.
    Box::leak(result.into_boxed_slice()).as_ptr()
}

fn text_of(bytes: Box<[u8]>) -> Result<String> {
    let image = Image::open(bytes)?;
    let mut text = String::new();
    for entry in image.walk() {
        let entry = entry?;
        let inode = entry.inode?;
        // Writing to a string cannot fail.
        let _ = write!(
            text,
            "{:?} {:04o} {} /{}",
            inode.file_type(),
            inode.permissions(),
            inode.size(),
            entry.path.display()
        );
        if inode.file_type() == FileType::Regular {
            let mut start = vec![0; SHOWN];
            let len = image.open_file(&inode)?.read_at(0, &mut start)?;
            let _ = write!(text, " {:?}", String::from_utf8_lossy(&start[..len]));
        }
        text.push('\n');
    }
    Ok(text)
}
