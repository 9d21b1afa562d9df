//! Seals an image while it is built: [`BuildSeal`].

use std::io::{self, Write};
use std::path::Path;

use ferofs_host::NewFile;
use ferofs_read::{Source, Uuid};
use ferofs_verity::{Digest, Params, WriteHasher};
use ferofs_write::Sealer;
use parking_lot::Mutex;

use crate::error::{IoError, Result};

/// Makes the hash tree of an image while the image is written, without reading the image again.
///
/// ```
/// use std::sync::Arc;
///
/// use ferofs::build::{Attributes, Builder, Content};
/// use ferofs::seal::BuildSeal;
/// use ferofs::verity::{Params, Seal, appended_position, verify_all};
///
/// let seal = Arc::new(BuildSeal::appended(Params::default(), None, 2)?);
/// let mut builder = Builder::new();
/// builder.options().output.sealer = Some(seal.clone());
/// builder.file("hello", Content::bytes("world"), Attributes::default());
/// let mut image = Vec::new();
/// builder.write_to(&mut image)?;
///
/// let root = seal.built().ok_or("the build has made the seal")?.root;
/// let tree = Seal::read(&image, appended_position(&image)?)?;
/// verify_all(&tree.verified(&image, &image, root)?, 2)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct BuildSeal {
    hasher: WriteHasher,
    params: Params,
    uuid: Option<Uuid>,
    /// The file for the tree; `None`: it follows the image.
    file: Mutex<Option<NewFile>>,
    is_appended: bool,
    built: Mutex<Option<BuiltSeal>>,
}

/// The seal that a build has made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct BuiltSeal {
    /// The root of the hash tree.
    pub root: Digest,
    /// Where the superblock of the tree is in its file, in bytes.
    pub position: u64,
    /// The number of data blocks.
    pub data_blocks: u64,
    /// The UUID of the seal.
    pub uuid: Uuid,
}

impl BuildSeal {
    /// A seal that follows the image in its file, with blocks of at most 4096 bytes. `threads`
    /// threads hash. Without `uuid`, the seal gets one that follows from its root.
    ///
    /// # Errors
    /// [`crate::Error::Other`] of the kind [`Seal`](crate::OtherKind::Seal).
    pub fn appended(params: Params, uuid: Option<Uuid>, threads: usize) -> Result<Self> {
        if params.data_block_size.max(params.hash_block_size) > 4096 {
            let problem = "above 4096 bytes needs a file of its own for the hash tree";
            return Err(
                ferofs_verity::Error::Parameter { parameter: "a block size", problem }.into()
            );
        }
        Self::new(params, uuid, threads, None)
    }

    /// A seal in a file of its own, which gets the name `path` with [`Self::finish`].
    ///
    /// # Errors
    /// As [`Self::appended`]; [`crate::Error::Io`] when the file cannot be created.
    pub fn in_file(
        params: Params,
        uuid: Option<Uuid>,
        threads: usize,
        path: &Path,
    ) -> Result<Self> {
        params.check()?;
        let file = NewFile::create(path)?;
        Self::new(params, uuid, threads, Some(file))
    }

    fn new(
        params: Params,
        uuid: Option<Uuid>,
        threads: usize,
        file: Option<NewFile>,
    ) -> Result<Self> {
        let hasher = WriteHasher::new(params.clone(), threads)?;
        let is_appended = file.is_none();
        Ok(Self {
            hasher,
            params,
            uuid,
            file: Mutex::new(file),
            is_appended,
            built: Mutex::new(None),
        })
    }

    /// The seal, after the build.
    pub fn built(&self) -> Option<BuiltSeal> {
        *self.built.lock()
    }

    /// Gives the file of [`Self::in_file`] its name. Call it after the build.
    ///
    /// # Errors
    /// [`Error::Io`](crate::Error::Io).
    pub fn finish(&self) -> Result<()> {
        let file = self.file.lock().take();
        match file {
            Some(_) if self.built().is_none() => {
                Err(IoError::unnamed("finish a seal", io::Error::other("no build has made it"))
                    .into())
            }
            Some(file) => Ok(file.finish()?),
            None => Ok(()),
        }
    }
}

impl Sealer for BuildSeal {
    fn alignment(&self) -> u64 {
        let block = u64::from(self.params.data_block_size);
        if !self.is_appended {
            return block;
        }
        // A seal is looked for at a multiple of the usual block size.
        block.max(self.params.hash_block_size.into()).max(4096)
    }

    fn written(&self, position: u64, bytes: &[u8]) {
        self.hasher.written(position, bytes);
    }

    fn finish(
        &self,
        image: &dyn Source,
        len: u64,
        append: &mut dyn FnMut(&[u8]) -> io::Result<()>,
    ) -> io::Result<()> {
        if self.built().is_some() {
            return Err(io::Error::other("the seal belongs to another image already"));
        }
        let mut file = self.file.lock();
        let write = |bytes: &[u8]| match &mut *file {
            Some(file) => file.write_all(bytes),
            None => append(bytes),
        };
        let sealed = self.hasher.finish(image, len, self.uuid, write).map_err(io::Error::other)?;
        let (superblock, root) = sealed;
        let position = if self.is_appended { len } else { 0 };
        let built = BuiltSeal {
            root,
            position,
            data_blocks: superblock.data_blocks,
            uuid: superblock.uuid,
        };
        *self.built.lock() = Some(built);
        Ok(())
    }
}
