//! Build, read, check, extract, seal and patch EROFS images.
//!
//! # Read a file
//!
//! ```
//! # use ferofs::build::{Attributes, Builder, Content};
//! # let mut builder = Builder::new();
//! # builder.file("etc/hostname", Content::bytes("example\n"), Attributes::default());
//! # let dir = tempfile::tempdir()?;
//! # let path = dir.path().join("image.erofs");
//! # builder.build(&path)?;
//! use ferofs::read::{FileSource, Image};
//!
//! let image = Image::open(FileSource::open(&path, 0)?)?; // or the bytes of an image: Image::open(bytes)?
//! assert_eq!(image.read("/etc/hostname")?, b"example\n");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! [`Image`](read::Image) has methods as [`std::fs`] for the rest: `read_dir`, `metadata`,
//! `open_file`, `walk`.
//!
//! # Build an image
//!
//! A [`Preset`](build::Preset) chooses the compression for a purpose; each says which Linux mounts
//! the image, with `mount -o loop tree.erofs /mnt`. Without one, nothing is compressed.
//!
//! ```
//! # let dir = tempfile::tempdir()?;
//! # let (tree, path) = (dir.path().join("tree"), dir.path().join("tree.erofs"));
//! # std::fs::create_dir(&tree)?;
//! use ferofs::build::{Options, Preset, build};
//!
//! let mut options = Options::new(&tree); // a directory; `options.source.format` is for archives and others
//! options.set_preset(Preset::Small)?;
//! let summary = build(&options, &path)?;
//! println!("{} bytes", summary.bytes_out);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! A [`Builder`](build::Builder) takes entries that the program makes:
//!
//! ```
//! # let dir = tempfile::tempdir()?;
//! # let path = dir.path().join("three.erofs");
//! use ferofs::build::{Attributes, Builder, Content, Preset};
//!
//! let mut builder = Builder::new();
//! builder.options().set_preset(Preset::Default)?;
//! builder.directory("docs", Attributes::default().mode(0o755));
//! builder.file("docs/greeting", Content::bytes("hello\n"), Attributes::default());
//! builder.symlink("greeting", "docs/greeting", Attributes::default());
//! builder.build(&path)?;
//! # assert_eq!(ferofs::read::Image::open(std::fs::read(&path)?)?.read("greeting")?, b"hello\n");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Check an image
//!
//! ```
//! # let mut bytes = Vec::new();
//! # ferofs::build::Builder::new().write_to(&mut bytes)?;
//! # let image = ferofs::read::Image::open(bytes)?;
//! let report = ferofs::check::check(&image, &Default::default())?;
//! for line in report.lines(image.superblock().block_size) {
//!     println!("{line}");
//! }
//! assert!(report.is_sound());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Mount an image
//!
//! Linux mounts images by itself. The crate `ferofs-fuse` mounts them without root, and where Linux
//! is too old.
//!
//! # The modules
//!
//! | module | what it does |
//! |---|---|
//! | [`build`] | builds an image from a directory, archives, or other images |
//! | [`read`] | reads an image: names, attributes, content |
//! | [`check`] | checks an image against the rules of the format |
//! | [`diff`] | compares two trees, each an image or a directory |
//! | [`inspect`] | shows what an image consists of, and where each part is |
//! | [`extract`] | writes an image's tree to a directory or a tar stream |
//! | [`patch`] | updates an image with a small patch, and rolls back |
//! | [`escape`] | prints names without control characters, which could change a terminal |
//! | [`byte_size`] | numbers of bytes as text |
//! | [`seal`] | makes the hash tree of an image while it is built |
//! | [`signature`] | signs digests, and checks their signatures |
//! | [`verity`] | makes hash trees over images, and verifies each block that is read |
//! | [`error`] | the error of this crate |

#![deny(unsafe_code)]

pub use ferofs_read as read;
pub use ferofs_verity as verity;
#[cfg(feature = "build")]
pub use ferofs_write as build;

pub mod check;
#[cfg(feature = "host")]
pub mod diff;
pub mod error;
#[cfg(feature = "extract-portable")]
pub mod extract;
pub mod inspect;
#[cfg(feature = "patch")]
pub mod patch;
mod range_marks;
#[cfg(feature = "build")]
pub mod seal;
#[cfg(any(feature = "host", feature = "extract-portable"))]
mod select;
#[cfg(feature = "signature")]
pub mod signature;

#[cfg(feature = "patch")]
pub use error::AfterFailure;
#[cfg(feature = "signature")]
pub use error::SignatureProblem;
pub use error::{Corruption, Error, IoError, LimitKind, OtherKind, Result};
pub use ferofs_format::byte_size;
#[cfg(feature = "host")]
#[doc(hidden)]
pub use ferofs_host as host;
#[cfg(feature = "host")]
pub use ferofs_host::NewFile;
pub use ferofs_read::escape;

/// Runs the program of the guide.
#[cfg(all(doctest, feature = "build"))]
#[doc = include_str!("../../../docs/guide/programs.md")]
struct ProgramOfTheGuide;
