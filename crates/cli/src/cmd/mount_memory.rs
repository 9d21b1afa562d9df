//! What the FUSE daemon keeps in memory: options of `ferofs mount`, and the access profile that it writes or pins.

use std::fs::File;
use std::io::{BufReader, BufWriter};
use std::path::{Path, PathBuf};

use ferofs::read::{EngineOptions, Image, LowMemory, Pinned, Policy, Profile, Recording, Strategy};

use super::image::ImageArgs;
use crate::exit::{About, Failure};

#[derive(clap::Args, Clone, Debug, Default)]
pub(crate) struct MemoryArgs {
    /// The page pool that decoding draws its buffers from; K, M and G are understood [default: 256K]
    #[arg(long, value_name = "BYTES", value_parser = bytes)]
    pool: Option<usize>,

    /// The most that the open image may hold in memory, pool and caches included
    #[arg(long, value_name = "BYTES", value_parser = bytes)]
    memory_limit: Option<usize>,

    /// How clusters are decoded
    #[arg(long, value_name = "POLICY")]
    decode: Option<Decode>,

    /// Count what is read, and write an access profile when unmounted
    #[arg(long, value_name = "FILE", conflicts_with = "kernel")]
    record_profile: Option<PathBuf>,

    /// Keep decoded what this access profile says is read most
    #[arg(long, value_name = "PROFILE", conflicts_with = "kernel")]
    pin: Option<PathBuf>,

    /// Memory for what is pinned
    #[arg(long, value_name = "BYTES", value_parser = bytes, default_value = "16M", requires = "pin")]
    pin_memory: Option<usize>,
}

/// Policies and strategies, see [`Policy`] and [`Strategy`].
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum Decode {
    Auto,
    Paper,
    Commercial,
    InPlace,
    Rolling,
    Vmap,
    Buffer,
    Direct,
}

/// The access profile in a file.
pub(super) fn read_profile(path: &Path) -> Result<Profile, Failure> {
    let file = File::open(path).map_err(|e| Failure::about(path, e))?;
    Profile::read(BufReader::new(file)).map_err(|e| Failure::about(path, e))
}

/// An access profile in the making.
pub(crate) struct Record {
    path: PathBuf,
    file: File,
    recording: Recording,
    /// The same image once more, to find the files' names: the daemon has the other, and may open nothing later.
    image: Image,
}

impl MemoryArgs {
    /// Whether only the FUSE daemon does what is asked.
    pub(crate) const fn wants_fuse(&self) -> bool {
        self.record_profile.is_some() || self.pin.is_some()
    }

    /// Sets what is asked.
    pub(crate) fn apply(&self, options: &mut EngineOptions) {
        options.pool = self.pool.unwrap_or(options.pool);
        options.memory_limit = self.memory_limit;
        options.policy = self.decode.map_or(options.policy, Decode::policy);
        options.record = self.record_profile.is_some();
        options.low_memory = LowMemory::Auto;
    }

    /// Pins what is asked.
    pub(crate) fn pin(&self, image: &mut Image) -> Result<Option<Pinned>, Failure> {
        let Some(path) = &self.pin else { return Ok(None) };
        let profile = read_profile(path)?;
        image.pin(&profile, self.pin_memory.unwrap_or(0)).about(path).map(Some)
    }

    /// Makes the profile's file while files can be made.
    pub(crate) fn record(&self, args: &ImageArgs, image: &Image) -> Result<Option<Record>, Failure> {
        let (Some(path), Some(recording)) = (&self.record_profile, image.recording()) else {
            return Ok(None);
        };
        let file = File::create(path).map_err(|e| Failure::about(path, e))?;
        Ok(Some(Record { path: path.clone(), file, recording, image: args.open()? }))
    }
}

impl Record {
    /// Writes the profile.
    pub(crate) fn finish(self) -> Result<(), Failure> {
        let profile = self.recording.profile(&self.image).about(&self.path)?;
        profile.write(BufWriter::new(self.file)).map_err(|e| Failure::about(&self.path, e))
    }
}

impl Decode {
    const fn policy(self) -> Policy {
        match self {
            Self::Auto => Policy::Auto,
            Self::Paper => Policy::Paper,
            Self::Commercial => Policy::Commercial,
            Self::InPlace => Policy::Always(Strategy::InPlace),
            Self::Rolling => Policy::Always(Strategy::Rolling),
            Self::Vmap => Policy::Always(Strategy::Vmap),
            Self::Buffer => Policy::Always(Strategy::Buffer),
            Self::Direct => Policy::Always(Strategy::Direct),
        }
    }
}

/// A number of bytes, of KiB with `K`, MiB with `M`, GiB with `G`.
fn bytes(text: &str) -> Result<usize, String> {
    let (number, shift) = match text.trim_end_matches(['K', 'k', 'M', 'm', 'G', 'g']) {
        number if number.len() == text.len() => (number, 0),
        number => match text[number.len()..].to_ascii_uppercase().as_str() {
            "K" => (number, 10),
            "M" => (number, 20),
            "G" => (number, 30),
            _ => return Err("not a number of bytes".into()),
        },
    };
    let number: usize = number.parse().map_err(|_| "not a number of bytes")?;
    number.checked_mul(1 << shift).ok_or_else(|| "too many bytes".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_have_units() {
        assert_eq!(bytes("4096"), Ok(4096));
        assert_eq!(bytes("256K"), Ok(256 << 10));
        assert_eq!(bytes("16m"), Ok(16 << 20));
        for wrong in ["", "K", "1KK", "-1", "1.5M", "99999999999G"] {
            assert!(bytes(wrong).is_err(), "{wrong}");
        }
    }
}
