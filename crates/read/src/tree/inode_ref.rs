//! Names of an inode: a path, its number, or the inode itself.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use ferofs_format::Nid;

use crate::error::Result;
use crate::image::Image;
use crate::metadata::inode::Inode;

/// Names an inode of an image: a path from its root, a [`Nid`], or an [`Inode`]. The methods of
/// [`Image`] take any of them.
///
/// A path may begin with a slash or not.
pub trait InodeRef {
    /// The inode in `image`. If it is a path whose last component is a symbolic link, that one is
    /// followed if `follow` is true.
    ///
    /// # Errors
    /// As [`Image::resolve`] and [`Image::inode`].
    fn find(self, image: &Image, follow: bool) -> Result<Inode>;

    /// The path, if it is one. Errors name it.
    fn path(&self) -> Option<&Path> {
        None
    }
}

impl InodeRef for Inode {
    fn find(self, _: &Image, _: bool) -> Result<Inode> {
        Ok(self)
    }
}

impl InodeRef for &Inode {
    fn find(self, _: &Image, _: bool) -> Result<Inode> {
        Ok(self.clone())
    }
}

impl InodeRef for Nid {
    fn find(self, image: &Image, _: bool) -> Result<Inode> {
        image.inode(self)
    }
}

/// Implements [`InodeRef`] for types of paths.
macro_rules! path_is_inode_ref {
    ($($path:ty),*) => {$(
        impl InodeRef for $path {
            fn find(self, image: &Image, follow: bool) -> Result<Inode> {
                image.resolve(self.as_ref(), follow)
            }

            fn path(&self) -> Option<&Path> {
                Some(self.as_ref())
            }
        }
    )*};
}

path_is_inode_ref!(&Path, PathBuf, &PathBuf, &str, String, &String, &OsStr, OsString, &OsString);
