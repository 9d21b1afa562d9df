//! Chooses an image of a layout by its name and platform, through nested indexes.

use super::document::{Descriptor, Index};
use super::store::Store;
use crate::error::Result;
use crate::error::oci::OciFault;
use crate::options::Options;
use crate::options::oci::Platform;
use crate::sources::content::Contents;

/// The deepest nesting of indexes; more is an error. Real layouts have two levels.
const DEPTH_MAX: usize = 8;

/// The manifest of the chosen image, and whether the index states its platform. If not, the caller checks the configuration.
pub(super) fn choose(
    store: &mut Store,
    options: &Options,
    contents: &mut Contents,
) -> Result<(Descriptor, bool)> {
    let mut index: Index = store.index(contents)?;
    let mut name = options.source.oci.name.as_deref();
    let mut parent: Option<Descriptor> = None;
    for _ in 0..DEPTH_MAX {
        let chosen = one(&index, name, options.source.oci.platform.as_ref())
            .map_err(|fault| store.error(parent.as_ref().map(|parent| &parent.digest), fault))?;
        if !chosen.is_index() {
            let is_certain = chosen.platform.is_some();
            return Ok((chosen, is_certain));
        }
        index = store.document(&chosen, contents)?;
        // Entries of nested indexes have no names.
        name = None;
        parent = Some(chosen);
    }
    Err(store.error(parent.as_ref().map(|parent| &parent.digest), OciFault::Nesting))
}

/// The entry of `index` with this name and platform.
pub(super) fn one(
    index: &Index,
    name: Option<&str>,
    platform: Option<&Platform>,
) -> Result<Descriptor, OciFault> {
    let images = || index.manifests.iter().filter(|image| image.is_index() || image.is_image());
    let labels = |images: &[&Descriptor]| images.iter().map(|image| image.label()).collect::<Vec<_>>();
    let mut left: Vec<&Descriptor> =
        images().filter(|image| name.is_none_or(|name| image.is_called(name))).collect();
    // An image with several names counts once.
    left.sort_by_key(|image| image.digest.to_string());
    left.dedup_by(|a, b| a.digest == b.digest);
    let here = Platform::of_this_machine();
    let wanted = platform.unwrap_or(&here);
    if platform.is_some() || left.len() > 1 {
        left.retain(|image| image.platform.as_ref().is_none_or(|platform| platform.is(wanted)));
    }
    match left.as_slice() {
        [one] => Ok((*one).clone()),
        [] => {
            let name = name.map_or(String::new(), |name| format!("called {name} "));
            let available = labels(&images().collect::<Vec<_>>());
            Err(OciFault::NoImage { wanted: format!("{name}for {wanted}"), available })
        }
        several => Err(OciFault::Ambiguous(labels(several))),
    }
}
