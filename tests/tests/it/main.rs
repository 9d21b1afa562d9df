//! ferofs judged from outside, as a command. One binary, in rooms:
//!
//! - `round_trip`: what is built and extracted again is the source.
//! - `kernel`: Linux mounts the images, and shows the source.
//! - `fuse`: so does the FUSE daemon, which also comes and goes as it should.
//! - `mount_helper`: installed as `/sbin/mount.erofs`, it serves mount(8).
//! - `daemon`: who may start it, what it tells, what it endures.
//! - `threads`: any number of workers makes the same bits.
//! - `cli`: options, exit codes, errors, and what is left behind after them.
//! - `failures`: the system gives no threads, no attributes, no bytes.
//! - `corrupt`: damaged images give one clear line, and never a panic, a hang, or a hunger for memory.
//! - `forged`: images that lie in one place; `check` finds each lie (`forge` tells them).
//! - `archive`: images as tar archives, and sidecar files.
//! - `extract`: which names, over what is there, and never outside of the target.
//! - `inspect`: looking inside; the page in a browser, `diff`, and what `dump.erofs` prints.
//! - `hostile`: small images that describe exabytes; each command ends by itself, in little time and memory.
//! - `malformed`: images that broke other readers (`mint` makes them by hand), and every command.
//! - `kept`: images that once broke something, in tests/corrupt.
//! - `engine`: each way of decoding through a mount, profiles and pins, limits of memory.
//! - `docs`: what the documents point to is there.
//! - `archives`: tar archives of every dialect.
//! - `oci`: OCI image layouts, flattened.
//! - `layers`: images made of images, and images that leave content in their sources.
//! - `broken_archives`: archives that lie, or are odd; `archive_limits`: those that ask for much with little.
//! - `mkfs`: the options of `mkfs.erofs`; `matrix`: every pair of settings; `callers`: the lines of those who call it.
//! - `patch`: updates of images, back and forth, power cuts, and patches that do not fit.
//! - `peers`: Debian's erofs-utils accept our images, and we theirs.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a failed step fails the test")]
#![allow(clippy::panic, reason = "the way to fail a test")]

mod archive;
mod archive_limits;
mod archives;
mod broken_archives;
mod callers;
mod cli;
mod corrupt;
mod daemon;
mod docs;
mod engine;
mod extract;
mod failures;
mod forge;
mod forged;
mod fuse;
mod hostile;
mod inspect;
mod kept;
mod kernel;
mod layers;
mod malformed;
mod matrix;
mod mint;
mod mkfs;
mod mount_helper;
mod oci;
mod patch;
mod patch_faults;
mod peers;
mod round_trip;
mod stage;
mod threads;
