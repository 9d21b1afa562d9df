//! Layers that are compressed as a whole: `application/vnd.erofs.layer.v1+zstd`.

use std::fs::File;
use std::io::{self, BufReader, Read, Write};
use std::path::Path;

use ferofs_read::Hex;
use sha2::{Digest as _, Sha256};

use crate::error::{Error, FetchErrorKind, Result};

/// Bytes that are decompressed at a time.
const PIECE: usize = 1 << 20;

/// Writes the content of `from`, which is compressed with Zstandard, to the new file `to`. `digest`
/// is what the result must have: `sha256:` and 64 hexadecimal digits, as the image's configuration
/// names it. `location` is for messages. `to` is removed after an error.
///
/// # Errors
/// [`Error::Fetch`] with [`FetchErrorKind::Digest`] if the result has another digest;
/// [`Error::Io`], also if `from` is not compressed with Zstandard.
pub fn decompress(from: &Path, to: &Path, digest: &str, location: &str) -> Result<()> {
    let file = File::create_new(to).map_err(Error::io("create", to))?;
    let done = decompress_to(from, to, file, digest, location);
    if done.is_err() {
        // The error that is returned says more than the one of the removal.
        let _ = std::fs::remove_file(to);
    }
    done
}

fn decompress_to(
    from: &Path,
    to: &Path,
    mut file: File,
    digest: &str,
    location: &str,
) -> Result<()> {
    let source = File::open(from).map_err(Error::io("open", from))?;
    let mut decoder =
        zstd::Decoder::new(BufReader::new(source)).map_err(Error::io("decompress", from))?;
    let (mut hasher, mut buffer) = (Sha256::new(), vec![0; PIECE]);
    loop {
        let len = match decoder.read(&mut buffer) {
            Ok(0) => break,
            Ok(len) => len,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(Error::io("decompress", from)(error)),
        };
        let bytes = buffer.get(..len).unwrap_or_default();
        hasher.update(bytes);
        file.write_all(bytes).map_err(Error::io("write", to))?;
    }
    file.sync_all().map_err(Error::io("sync", to))?;
    if format!("sha256:{}", Hex(&hasher.finalize())) != digest {
        return Err(Error::fetch(location, FetchErrorKind::Digest));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use ferofs_read::IoError;

    use super::*;

    #[test]
    fn what_is_wrong_is_removed() {
        let folder = tempfile::tempdir().unwrap();
        let (from, to) = (folder.path().join("from"), folder.path().join("to"));
        let bytes: Vec<u8> = (0..3_000_000u32).map(|at| (at / 5) as u8).collect();
        let digest = format!("sha256:{}", Hex(&Sha256::digest(&bytes)));
        let compressed = zstd::encode_all(bytes.as_slice(), 3).unwrap();
        std::fs::write(&from, &compressed).unwrap();
        decompress(&from, &to, &digest, "here").unwrap();
        assert!(std::fs::read(&to).unwrap() == bytes);
        // An existing file is not replaced.
        assert!(matches!(
            decompress(&from, &to, &digest, "here"),
            Err(Error::Io(IoError { action: "create", .. }))
        ));
        std::fs::remove_file(&to).unwrap();
        let wrong = decompress(&from, &to, &digest.replace('a', "b"), "here").unwrap_err();
        assert!(
            matches!(&wrong, Error::Fetch { error, .. } if matches!(error.kind, FetchErrorKind::Digest)),
            "{wrong}"
        );
        assert!(!to.exists());
        for broken in [&compressed[..compressed.len() / 2], b"no zstd".as_slice()] {
            std::fs::write(&from, broken).unwrap();
            assert!(matches!(
                decompress(&from, &to, &digest, "x"),
                Err(Error::Io(IoError { action: "decompress", .. }))
            ));
            assert!(!to.exists());
        }
    }
}
