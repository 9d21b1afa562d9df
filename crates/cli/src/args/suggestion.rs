//! A suggestion for a name that does not exist.

/// "; the nearest is X" when one of `names` is near enough to `name`.
pub(crate) fn nearest<'a>(name: &str, names: impl IntoIterator<Item = &'a str>) -> String {
    let likeness = |other: &str| strsim::jaro_winkler(name, other);
    let best = names.into_iter().max_by(|a, b| likeness(a).total_cmp(&likeness(b)));
    best.filter(|best| likeness(best) > 0.75).map_or(String::new(), |best| format!("; the nearest is {best}"))
}
