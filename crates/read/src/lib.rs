//! A part of ferofs: users choose `ferofs`, `ferofs-fuse` or `ferofs-cli`.
//!
//! Reads EROFS images: names, attributes and content.
//!
//! Read a file from an image in memory:
//!
//! ```
//! use ferofs_read::Image;
//!
//! # fn example_image() -> Result<Vec<u8>, Box<dyn std::error::Error>> {
//! # let dir = tempfile::tempdir()?;
//! # std::fs::create_dir_all(dir.path().join("tree/etc"))?;
//! # std::fs::write(dir.path().join("tree/etc/hostname"), "example\n")?;
//! # let path = dir.path().join("tree.erofs");
//! # ferofs_write::build(&ferofs_write::Options::new(dir.path().join("tree")), &path)?;
//! # Ok(std::fs::read(&path)?)
//! # }
//! # let bytes: Vec<u8> = example_image()?;
//! let image = Image::open(bytes)?;
//! let hostname = image.read("/etc/hostname")?;
//! assert_eq!(hostname, b"example\n");
//! for entry in image.walk() {
//!     let entry = entry?;
//!     println!("{:>10} {}", entry.inode?.size(), entry.path.display());
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Sources
//!
//! [`Image::open`] takes any [`Source`]:
//!
//! | the image is in | source |
//! |---|---|
//! | a file, or on Linux a block device | `FileSource` |
//! | memory | `Vec<u8>`, `&'static [u8]`, `Arc<[u8]>`, `Box<[u8]>`; a memory map or other type: [`BytesSource`] |
//! | anything that reads and seeks | [`SeekSource`] |
//! | a place from which the program fetches bytes itself, for example asynchronously | [`FetchedSource`] |
//! | another place | your own type: [`Source`] needs a size, and reads at a position |
//!
//! A source for which each read takes long, such as a server's, implements [`Source::read_ranges`],
//! which reads several ranges together, and [`Source::prefers_batches`]. It reads ahead by itself.
//!
//! An [`Image`] is [`Send`] and [`Sync`], and a clone shares the open image, so any number of
//! threads can read it.
//!
//! # From names to bytes
//!
//! Methods that look for an inode, as [`Image::read`] and [`Image::read_dir`], take a path, a
//! number ([`Nid`]), or an [`Inode`]: see [`InodeRef`]. Those of what is inside, as
//! [`Image::read_at`], take an [`Inode`].
//!
//! ```
//! use std::io::{Read, Seek, SeekFrom};
//!
//! use ferofs_read::{ExtentData, FileOffset, FileSource, Image};
//!
//! # let dir = tempfile::tempdir()?;
//! # std::fs::create_dir_all(dir.path().join("tree/bin"))?;
//! # std::fs::write(dir.path().join("tree/bin/hello"), "hello, ".repeat(10_000))?;
//! # let path = dir.path().join("tree.erofs");
//! # let mut options = ferofs_write::Options::new(dir.path().join("tree"));
//! # options.data.compression = Some(ferofs_write::Compression::lz4(0)?);
//! # ferofs_write::build(&options, &path)?;
//! let image = Image::open(FileSource::open(&path, 0)?)?;
//!
//! // Listing a directory.
//! for entry in image.read_dir("bin")? {
//!     println!("{}", String::from_utf8_lossy(&entry?.name));
//! }
//!
//! // The attributes that stat(2) shows.
//! let hello = image.metadata("bin/hello")?;
//! println!("{:o} {} {:?}", hello.permissions(), hello.uid(), hello.modified());
//! assert_eq!(hello.size(), 70_000);
//!
//! // An open file reads and seeks like one of `std::fs`, and keeps the image open.
//! let mut file = image.open_file("bin/hello")?;
//! file.seek(SeekFrom::End(-7))?;
//! let mut text = String::new();
//! file.read_to_string(&mut text)?;
//! assert_eq!(text, "hello, ");
//!
//! // Bytes from anywhere, decoded.
//! let mut bytes = [0; 5];
//! assert_eq!(image.read_at(&hello, FileOffset::new(49_000), &mut bytes)?, 5);
//! assert_eq!(&bytes, b"hello");
//!
//! // Where they are: what FIEMAP tells, and how they are encoded.
//! for extent in image.extents(&hello, FileOffset::new(0))? {
//!     let extent = extent?;
//!     if let ExtentData::Encoded { algorithm, encoded_len, .. } = extent.data {
//!         println!("{} bytes at {}: {encoded_len} of {}", extent.len, extent.start.get(), algorithm.name());
//!     }
//! }
//!
//! // Extended attributes: all of them, or one.
//! for xattr in image.xattrs(&hello)? {
//!     println!("{} = {:?}", String::from_utf8_lossy(&xattr.name), xattr.value);
//! }
//! assert_eq!(image.xattr(&hello, b"user.none")?, None);
//!
//! // The cost of all these reads.
//! println!("{} bytes read, {} decoded", image.stats().io().bytes, image.stats().decoded_bytes);
//! # assert!(image.stats().decoded_bytes > 0);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Memory and decoding
//!
//! [`EngineOptions`] set how much memory it may hold, and what it keeps:
//!
//! ```
//! use ferofs_read::{FileOffset, Image, LowMemory, OpenOptions};
//!
//! # let dir = tempfile::tempdir()?;
//! # std::fs::create_dir(dir.path().join("tree"))?;
//! # std::fs::write(dir.path().join("tree/often"), "read ".repeat(10_000))?;
//! # let path = dir.path().join("tree.erofs");
//! # ferofs_write::build(&ferofs_write::Options::new(dir.path().join("tree")), &path)?;
//! let bytes = std::fs::read(&path)?;
//! let mut options = OpenOptions::default();
//! options.engine.memory_limit = Some(1 << 20);
//! options.engine.low_memory = LowMemory::Auto;
//! options.engine.record = true;
//! let image = Image::open_with(Box::new(bytes), Vec::new(), &options)?;
//! let often = image.resolve("often".as_ref(), true)?;
//! image.read_at(&often, FileOffset::new(0), &mut [0; 100])?;
//!
//! // The ranges that are read most can be kept decoded, by this image or by the next one.
//! let profile = image.profile()?;
//! assert_eq!(profile.ranges[0].path.as_os_str(), "/often");
//! assert_eq!(image.pin(&profile, 100_000)?.ranges, 1);
//! image.read_at(&often, FileOffset::new(0), &mut [0; 100])?;
//! assert_eq!(image.stats().pinned_hits, 1);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Features
//!
//! | feature | what it adds |
//! |---|---|
//! | `lzma`, `deflate`, `zstd` | decoders of these algorithms. Without one, reads of files that need it fail |
//! | `serde` | [`Stats`] can be serialized |
//! | `liblz4` (not by default) | liblz4 decodes LZ4, 4 to 7 % faster than the decoder in Rust |
//! | `comparison` (not by default) | the policies of decoding that the EROFS paper compares, for benchmarks. Needs Linux; has most of the `unsafe` code |
//!
//! LZ4 is always decoded. With no feature, the crate has no C code, and runs in WebAssembly.
//!
//! # The modules
//!
//! The data flows through these modules, whose imports go the same way: `volume` (devices,
//! superblock, block cache) -> `metadata` (inodes, attributes, maps of files) -> `engine`
//! (decoding) -> `content` (bytes of a file) -> `image` ([`Image`], the interface) -> `structures`
//! (its methods for checkers and servers) -> `tree` (directories, paths, [`walk`], open files) ->
//! `profile`. `accounting` limits and counts the work and memory of all of them.

#![deny(unsafe_code)]
// Not in tests, which fail when a number overflows.
#![cfg_attr(
    not(test),
    warn(clippy::arithmetic_side_effects, clippy::as_conversions, clippy::indexing_slicing)
)]

#[doc(hidden)]
pub mod access;
pub mod error;
pub mod escape;
pub mod names;

// The documentation of `Image` has its methods in the order of these modules.
mod image;
mod tree;

mod accounting;
mod content;
mod engine;
mod metadata;
mod profile;
mod structures;
mod volume;

#[cfg(test)]
mod tests;

#[doc(hidden)]
pub use accounting::budget::Budget;
pub use accounting::pressure::{LowMemory, PressureFile};
pub use accounting::progress::{Cancel, Count};
pub use accounting::stats::{Io, Stats};
#[doc(hidden)]
pub use content::{BOOKKEEPING, InodeReader};
#[cfg(feature = "comparison")]
pub use engine::comparison::Policy;
pub use engine::options::EngineOptions;
#[doc(hidden)]
pub use engine::options::READER_MEMORY;
#[cfg(feature = "comparison")]
pub use engine::strategy::Strategy;
pub use error::{Corruption, Error, IoError, LimitKind, Result};
pub use ferofs_format::inode::{DataLayout, FileType, Place, Rdev, Timestamp};
pub use ferofs_format::superblock::{Compression, Superblock};
pub use ferofs_format::{
    Algorithm, Compat, DeviceId, FileOffset, Hex, Incompat, Nid, ParseUuidError, Uuid,
};
pub use image::{Image, OpenOptions};
pub use metadata::extent::{Extent, ExtentData, Location};
pub use metadata::inode::Inode;
pub use metadata::map::Extents;
pub use metadata::xattr::Xattr;
pub use profile::Pinned;
pub use profile::ProfileRanges;
pub use profile::Recording;
pub use profile::text::{HotRange, Profile, ProfileError};
#[doc(hidden)]
pub use tree::device_range;
pub use tree::dir::{DirCookie, DirEntry, ReadDir};
pub use tree::file::File;
pub use tree::inode_ref::InodeRef;
pub use tree::walk;
pub use volume::MetadataPlace;
pub use volume::fetched_source::{Attempt, FetchedSource};
#[cfg(any(target_os = "linux", target_os = "android"))]
pub use volume::file_source::FileSource;
#[cfg(all(any(unix, windows), not(any(target_os = "linux", target_os = "android"))))]
pub use volume::portable_file::FileSource;
pub use volume::source::{Access, BytesSource, ReadRange, SeekSource, Source};
