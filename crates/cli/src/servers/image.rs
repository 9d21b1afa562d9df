//! How commands open an image on a server.

use std::path::PathBuf;
use std::sync::Arc;

use ferofs::read::Source;

use crate::args::image::{ImageArgs, ImageSource, OpenFiles};
use crate::exit::Failure;

impl ImageArgs {
    /// Opens an image on a server, which this process fetches, and the files of these patches.
    pub(crate) fn open_remote(&self, patches: &[PathBuf]) -> Result<OpenFiles, Failure> {
        self.check_remote()?;
        let image = self.servers.open_image(&self.path.given, &self.seal)?;
        let fetcher = Arc::new(self.servers.fetcher(&image, true)?);
        let source = image.source(fetcher, self.servers.patience()).map_err(Failure::complete)?;
        self.with_source(source.into(), patches)
    }

    /// Fails for options that an image on a server cannot have.
    pub(super) fn check_remote(&self) -> Result<(), Failure> {
        if self.offset != 0 || self.seal.hash_file.is_some() {
            let reason = "an image on a server has neither --offset nor --hash-file";
            return Err(Failure::about(&self.path, reason));
        }
        Ok(())
    }

    /// Whether the arguments have a password, a token or a signature.
    pub(super) fn has_secrets(&self) -> bool {
        *self.path != *self.path.given || self.servers.remote.has_secrets()
    }
}

/// What `ferofs-remote` opens: the bytes, and whether it verifies them.
impl From<(Arc<dyn Source>, bool)> for ImageSource {
    fn from((bytes, is_verified): (Arc<dyn Source>, bool)) -> Self {
        Self { bytes, seal: None, has_end_to_check: is_verified }
    }
}
