//! What the steps after the division into parts work with: both images, and the length of parts.

use ferofs_update::format::prediction::Prediction;

use super::content::FileExtent;
use super::copies::Equal;
use super::image::DeltaImage;
use super::methods::Methods;
use super::options::DeltaOptions;
use super::units::{Part, Run};

/// What pieces are made from.
pub(super) struct DeltaContext<'a> {
    pub(super) old: &'a DeltaImage,
    pub(super) new: &'a DeltaImage,
    /// Bytes that both images have.
    pub(super) equal: &'a [Equal],
    pub(super) methods: &'a Methods,
    /// The metadata of the new image as `apply` predicts it.
    pub(super) prediction: Option<&'a Prediction>,
    pub(super) options: &'a DeltaOptions,
}

pub(super) fn extents<'a>(context: &DeltaContext<'a>, run: &Run) -> &'a [FileExtent] {
    &context.new.content.extents[run.extents.clone()]
}

/// Bytes of content of `run`.
pub(super) fn content_len(context: &DeltaContext<'_>, run: &Run) -> usize {
    extents(context, run).iter().map(|extent| extent.len).sum()
}

/// Bytes of content or as they are that the piece of `part` has for it.
pub(super) fn made_len(context: &DeltaContext<'_>, part: &Part) -> usize {
    match part {
        Part::Copy { .. } => 0,
        Part::Run(run) => content_len(context, run),
        Part::Raw { range, .. } => range.len(),
    }
}
