//! The options of `ferofs build` for an image like an earlier one.

use std::path::{Path, PathBuf};

use ferofs::patch::LikeOptions;

use crate::args::outputs::refuse_as_output;
use crate::exit::Failure;

#[derive(clap::Args)]
pub(super) struct LikeArgs {
    /// Build an image like OLD, an image of an earlier version: content that both have keeps its
    /// place and its encoding
    ///
    /// Programs that transfer only the changed parts of an image then transfer little: rsync,
    /// zsync, casync, desync, zchunk, RAUC. Give the same options as for OLD. Bytes of OLD that the
    /// new image does not need can stay in it: see --like-waste.
    #[arg(hide_short_help = true, long, value_name = "OLD", conflicts_with_all = ["index_only", "chunk_size", "skip_unreadable", "estimate"])]
    like: Option<PathBuf>,

    /// The most bytes of OLD in the image that nothing uses, in percent. If there would be more,
    /// less of OLD is kept. With more than 0, a fifth of the image but at most 64 KiB may be unused
    #[arg(hide_short_help = true, long, value_name = "PERCENT", requires = "like", default_value = "3", value_parser = percent)]
    like_waste: u8,
}

impl LikeArgs {
    /// The earlier image, which `image` must not replace: the build reads it until the end.
    pub(super) fn options(&self, image: &Path) -> Result<Option<LikeOptions>, Failure> {
        let Some(old) = &self.like else { return Ok(None) };
        refuse_as_output(image, &[old.as_path()])?;
        let mut like = LikeOptions::new(old);
        like.waste = self.like_waste;
        Ok(Some(like))
    }
}

/// A number of percent: `3` or `3%`.
fn percent(text: &str) -> Result<u8, String> {
    let number = text.strip_suffix('%').unwrap_or(text).parse::<u8>().ok();
    number
        .filter(|number| *number <= 100)
        .ok_or_else(|| "not a number of percent from 0 to 100".to_owned())
}
