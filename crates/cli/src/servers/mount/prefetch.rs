//! What the fetcher of a mount fetches before readers need it: all of the image, or the files of an
//! access profile.
//!
//! The fetcher never looks into an image. So the daemon, after it has given up its rights, finds
//! where the files are, joins the ranges to few large ones, and has the fetcher fetch them in the
//! background. Nothing else waits for this, or fails because of it.

use std::ffi::OsString;
use std::fs::File;
use std::io::{Read, Seek};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::Builder;
use std::time::{Duration, Instant};

use ferofs::escape::Escaped;
use ferofs::read::{Count, Image, Profile};
use ferofs_serve::cache::Entry;
use ferofs_serve::channel::{BACKGROUND_MAX, Client};
use ferofs_serve::fetch::join_ranges;

use crate::exit::{Concerning, Failure};
use crate::print::output::message;
use crate::servers::args::ServerArgs;

/// Bytes of an access profile that are read, about 70,000 ranges. It has the most-read ranges
/// first: the others are fetched when they are read.
const PROFILE_MAX: u64 = 4 << 20;
/// Ranges of an image that are found before they are joined, which bounds the memory for a hostile
/// image.
const RANGES_MAX: usize = 1 << 17;
/// How long the daemon looks for the files of a profile, which may have to be fetched, too. What
/// was found until then is fetched.
const FIND_TIME: Duration = Duration::from_secs(60);
/// The nice value of the thread: threads that answer requests come first.
const NICE: i32 = 10;

/// What a mount prefetches.
#[derive(clap::Args, Clone, Debug, Default)]
pub(crate) struct PrefetchArgs {
    /// Of an image on a server, fetch this in the background: `all`, `none`, or the files of an
    /// access profile (--record-profile). `none` still fetches what follows in sequential reads
    /// [default: the files of the access profile that was pushed with the image, and the metadata
    /// near the root]
    #[arg(long, hide_short_help = true, value_name = "all|none|PROFILE")]
    pub(crate) prefetch: Option<Prefetch>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Prefetch {
    /// The whole image.
    All,
    /// Nothing but what follows in sequential reads.
    None,
    /// The files of this access profile.
    Profile(PathBuf),
}

impl From<OsString> for Prefetch {
    fn from(value: OsString) -> Self {
        match value.to_str() {
            Some("all") => Self::All,
            Some("none") => Self::None,
            _ => Self::Profile(value.into()),
        }
    }
}

impl Prefetch {
    /// Whether the access profile that was pushed with an image is used.
    pub(crate) fn wants_profile_of_image(choice: Option<&Self>) -> bool {
        matches!(choice, None | Some(Self::All))
    }

    /// Whether the metadata near the root is fetched when the image is opened.
    pub(crate) fn wants_metadata(choice: Option<&Self>) -> bool {
        choice != Some(&Self::None)
    }
}

/// What is to be fetched, with open files.
pub(crate) struct Plan {
    name: &'static str,
    /// An access profile, and its name for messages.
    profile: Option<(PathBuf, File)>,
    /// The bytes of an image that is fetched completely.
    all: Option<u64>,
}

/// What is fetched in the background, for `ferofs stats`.
#[derive(Debug)]
pub(crate) struct Background {
    /// What was chosen.
    pub(crate) name: &'static str,
    pub(crate) ranges: Count,
    pub(crate) bytes: Count,
    /// Files of the profile that the image does not have.
    pub(crate) missing: Count,
}

impl Plan {
    /// Opens the profile. Must be called before the sandbox starts: the sandbox forbids opening
    /// files.
    pub(crate) fn open(
        choice: Option<&Prefetch>,
        location: &Path,
        servers: &ServerArgs,
        entry: &Entry,
    ) -> Result<Self, Failure> {
        let all = (choice == Some(&Prefetch::All)).then(|| entry.size());
        if let (Some(size), Some(limit)) = (all, servers.cache.cache_size)
            && size > limit
        {
            let reason = format!(
                "--prefetch all: the image has {size} bytes, and --cache-size allows {limit}"
            );
            return Err(Failure::about(location, reason));
        }
        let profile = match choice {
            Some(Prefetch::Profile(path)) => {
                Some((path.clone(), File::open(path).concerning(path)?))
            }
            _ if Prefetch::wants_profile_of_image(choice) => match entry.profile() {
                Ok(file) => file.map(|file| (location.to_owned(), file)),
                Err(error) => {
                    message!("{}: access profile: {error}", Escaped::path(location));
                    None
                }
            },
            _ => None,
        };
        let name = match (choice, &profile) {
            (Some(Prefetch::All), _) => "all",
            (Some(Prefetch::None), _) => "none",
            (Some(Prefetch::Profile(_)), _) => "profile",
            (None, Some(_)) => "image-profile",
            (None, None) => "metadata",
        };
        // Without a server, nothing can be fetched.
        let (profile, all) = if servers.offline { (None, None) } else { (profile, all) };
        Ok(Self { name, profile, all })
    }

    /// Starts the thread that finds the ranges and announces them to the fetcher.
    pub(crate) fn start(self, image: &Image, client: &Arc<Client>) -> Arc<Background> {
        let background = Arc::new(Background {
            name: self.name,
            ranges: Count::default(),
            bytes: Count::default(),
            missing: Count::default(),
        });
        if self.profile.is_some() || self.all.is_some() {
            let (image, client, counters) =
                (image.clone(), Arc::clone(client), Arc::clone(&background));
            let started = Builder::new()
                .name("prefetch".into())
                .spawn(move || self.run(&image, &client, &counters));
            if let Err(error) = started {
                message!("prefetch: {error}");
            }
        }
        background
    }

    fn run(&self, image: &Image, client: &Client, background: &Background) {
        // Without permission the thread only has the usual priority.
        let _ = rustix::process::setpriority_process(None, NICE);
        let announce = |mut ranges: Vec<std::ops::Range<u64>>| {
            ranges.truncate(BACKGROUND_MAX);
            if let Err(error) = client.background(&ranges) {
                message!("prefetch: {error}");
            }
            background.ranges.add(ranges.len() as u64);
            background.bytes.add(ranges.iter().map(|range| range.end - range.start).sum());
        };
        if let Some((path, file)) = &self.profile {
            match read(file) {
                Ok(profile) => {
                    let end = Instant::now() + FIND_TIME;
                    let found = image.profile_ranges(&profile, RANGES_MAX, || Instant::now() < end);
                    background.missing.set(found.missing);
                    announce(join_ranges(found.ranges));
                }
                Err(error) => message!("{}: access profile: {error}", Escaped::path(path)),
            }
        }
        if let Some(size) = self.all {
            announce(std::iter::once(0..size).collect());
        }
    }
}

/// Reads the start of a profile, up to [`PROFILE_MAX`].
fn read(mut file: &File) -> Result<Profile, ferofs::read::ProfileError> {
    let mut text = Vec::new();
    // Another daemon of this mount may have read it before.
    file.rewind()?;
    file.take(PROFILE_MAX).read_to_end(&mut text)?;
    if text.len() as u64 == PROFILE_MAX {
        text.truncate(text.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1));
    }
    Profile::read(text.as_slice())
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn the_start_of_a_long_profile_is_used() {
        let mut file = tempfile::tempfile().unwrap();
        let mut text = b"# ferofs access profile 1\n".to_vec();
        let mut lines = 0;
        while (text.len() as u64) < PROFILE_MAX + 100_000 {
            lines += 1;
            writeln!(text, "{} 0 65536 /file{lines}", 1_u64 << 40).unwrap();
        }
        file.write_all(&text).unwrap();
        std::io::Seek::rewind(&mut file).unwrap();
        let profile = read(&file).unwrap();
        assert!(profile.ranges.len() > 100_000 && profile.ranges.len() < lines);
        let long_line = tempfile::tempfile().unwrap();
        std::os::unix::fs::FileExt::write_all_at(&long_line, &vec![b'x'; 5 << 20], 0).unwrap();
        assert!(read(&long_line).is_err());
    }
}
