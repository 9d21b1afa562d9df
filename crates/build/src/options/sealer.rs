//! [`Sealer`]: a program's own processing of the bytes of an image while they are written.

use std::fmt::Debug;
use std::io;

use ferofs_read::Source;

/// Sees the bytes of an image when they are written, and appends to the image when it is complete; for example a hash tree.
pub trait Sealer: Debug + Send + Sync {
    /// The image is filled with zeroes up to a multiple of this many bytes before [`Self::finish`].
    fn alignment(&self) -> u64 {
        1
    }

    /// These bytes were written at `position` in the image. A few places are written twice: the last bytes count. Bytes that are never
    /// written are zero.
    fn written(&self, position: u64, bytes: &[u8]);

    /// The image is complete and has `len` bytes. What is passed to `append` follows the image.
    ///
    /// # Errors
    /// Any error, also of `append`, makes the build fail.
    fn finish(
        &self,
        image: &dyn Source,
        len: u64,
        append: &mut dyn FnMut(&[u8]) -> io::Result<()>,
    ) -> io::Result<()>;
}
