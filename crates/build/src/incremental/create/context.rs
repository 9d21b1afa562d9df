//! The inputs of all steps of [`create`](super::create). No step changes them.

use std::sync::Arc;

use crate::options::Options;
use crate::options::compression::Compression;
use crate::sources::content::Contents;
use crate::tree::Tree;
use ferofs_codec::Params;
use ferofs_format::{BlockSize, Incompat};
use ferofs_read::{Image, Source};

use super::options::{CreateOptions, IgnoredAttributes};
use super::survey::Survey;
use crate::error::Result;
use ferofs_patch::image::history::History;
use ferofs_patch::image::sector::SuperblockArea;

/// The old image and the new tree.
#[derive(Clone, Copy)]
pub(crate) struct Inputs<'a> {
    pub(crate) options: &'a Options,
    pub(crate) old: &'a Image,
    pub(crate) survey: &'a Survey,
    pub(crate) tree: &'a Tree,
    pub(crate) contents: &'a Contents,
    pub(crate) ignore: IgnoredAttributes,
}

/// All that a patch is made from.
pub(crate) struct CreateContext<'a> {
    pub(crate) options: &'a CreateOptions,
    pub(crate) inputs: Inputs<'a>,
    /// The old image's bytes.
    pub(crate) base: &'a Arc<dyn Source>,
    pub(crate) area: &'a SuperblockArea,
    pub(crate) history: &'a History,
    /// How new content is encoded; `None`: it is stored.
    pub(crate) compression: Option<Compression>,
    /// Features that the new image may use.
    pub(crate) allowed: Incompat,
    /// The compressors that a program must have to apply the patch: none if it carries all encoded bytes.
    pub(crate) methods: Vec<Params>,
}

/// The compressors of content and of the metabox, each once, with the parameters that the builder gives them.
pub(crate) fn methods(
    content: Option<&Compression>,
    metabox: Option<&Compression>,
    block: BlockSize,
) -> Result<Vec<Params>> {
    let mut methods: Vec<Params> = Vec::new();
    for compression in content.into_iter().chain(metabox) {
        for method in 0..compression.methods.len() {
            let params = compression.compressor_params(method, block)?;
            if !methods.contains(&params) {
                methods.push(params);
            }
        }
    }
    Ok(methods)
}
