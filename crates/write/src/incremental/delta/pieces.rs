//! Makes the pieces of a delta: joins parts, finds what each resembles in the old image, and
//! compresses them.

use std::collections::{HashMap, HashSet};
use std::ops::Range;
use std::path::Path;

use ferofs_update::format::delta_file::{COPIES_MAX, Copy, DeltaPiece};
use ferofs_update::format::delta_memory::PieceMemory;
use ferofs_update::format::piece::PIECE_LEN;
use ferofs_update::format::piece::base::{Base, REFERENCES_MAX};
use ferofs_update::format::plan::{ExtentKind, Item, Plan, Reference};
use ferofs_update::format::prediction::{Predict, Relocations};
use ferofs_update::format::reencode::{Encoders, work_limit};
use parking_lot::Mutex;

use super::content::ImageContent;
use super::context::{DeltaContext, content_len, extents, made_len};
use super::runs::{RunUnit, carried_len, carry_slowest, check_runs, content, stored_bytes};
use super::units::{Part, RawBytes, Run, within};
use crate::error::Result;
use crate::incremental::create::describe::pieces::{GAP, merge, shortest, workers};
use crate::output::spill::{Spill, SpillRange};

/// Bytes of a dictionary at most, unless one extent needs more: it is held in memory.
const DICTIONARY_MAX: u64 = 8 << 20;
/// Bytes of content and metadata up to which both are in one piece.
const MIXED_MAX: usize = 16 << 10;
/// Bytes of an old file up to which all of it is searched, and bytes around the same offset in
/// longer ones.
const WHOLE_MAX: u64 = 6 << 20;
const AROUND: u64 = 1 << 20;
/// Ranges of old metadata up to which all are one dictionary.
const RANGES_MAX: usize = 64;
/// Bytes before and after old metadata that lies beside new one.
const BESIDE: u64 = 8 << 10;
/// Bytes of copies after which a piece ends, so that progress is seen and few bytes are made again
/// after an interruption.
const COPIED_MAX: usize = 32 << 20;
/// Pieces of predicted metadata that are made in both forms, to see which one is shorter: the
/// others of an image are like them.
const TRIED_MAX: usize = 4;
/// Predictions must save at least one in so many stored bytes: they take memory.
const GAIN: usize = 16;
/// If this part of the bytes of a unit is carried, or more, all of them may be shorter.
const CARRIED_PART: u64 = 4;

/// The pieces as stored, and what they have.
pub(super) struct MadePieces {
    pub(super) bytes: Spill,
    /// Where each piece is in the bytes.
    pub(super) pieces: Vec<SpillRange>,
    pub(super) memory: PieceMemory,
    pub(super) copied: u64,
    pub(super) encoded: u64,
    pub(super) carried: u64,
}

/// A range of old content: 0 for bytes of the image, or 1 and the number of a file; or a range of
/// the [`PREDICTED`] bytes of the new image, or of the [`PREDICTED_METABOX`].
type OldRange = (usize, u64, u64);
const PREDICTED: usize = usize::MAX;
const PREDICTED_METABOX: usize = usize::MAX - 1;

/// The parts of a piece.
#[derive(Default)]
struct Group {
    parts: Vec<Part>,
    old: Vec<OldRange>,
}

impl Group {
    /// Whether it refers to predicted metadata.
    fn is_predicted(&self) -> bool {
        self.old.iter().any(|(of, ..)| [PREDICTED, PREDICTED_METABOX].contains(of))
    }

    /// The same parts, with what they resemble for `context`.
    fn with(&self, context: &DeltaContext<'_>) -> Self {
        let metadata = MetadataRanges::of(context);
        let old = self.parts.iter().flat_map(|part| resembles(context, &metadata, part));
        Self { old: old.collect(), parts: self.parts.clone() }
    }

    fn runs(&self) -> impl Iterator<Item = &Run> {
        self.parts.iter().filter_map(|part| match part {
            Part::Run(run) => Some(run),
            _ => None,
        })
    }
}

/// The parts of the new image, in groups that become pieces, and how their runs are made.
pub(super) struct Checked {
    groups: Vec<Group>,
    units: Vec<Vec<RunUnit>>,
}

impl Checked {
    /// Finds how the runs are made, so that `apply` accepts the work of encoding them. The runs of
    /// `before` are known.
    pub(super) fn new(
        context: &DeltaContext<'_>,
        parts: Vec<Part>,
        before: Option<Self>,
    ) -> Result<Self> {
        let known = before.map(|before| {
            before.runs().map(|(run, unit)| (run.extents.clone(), unit.clone())).collect()
        });
        let known = known.unwrap_or_default();
        let groups = groups(context, parts);
        let mut units = in_parallel(context, groups.len(), |number, encoders| {
            check_runs(context, &groups[number].parts, &known, encoders)
        })?;
        carry_slowest(units.iter_mut().flatten(), work_limit(context.new.len() as u64));
        Ok(Self { groups, units })
    }

    fn runs(&self) -> impl Iterator<Item = (&Run, &RunUnit)> {
        self.groups.iter().zip(&self.units).flat_map(|(group, units)| group.runs().zip(units))
    }

    /// The extents that no compressor makes.
    pub(super) fn carried(&self) -> impl Iterator<Item = usize> {
        self.runs().flat_map(|(run, unit)| unit.carried(run.extents.clone()))
    }
}

/// Makes some pieces with and without predicted metadata. Returns those with it, by number, if they
/// are shorter by more than the list of `relocations` takes.
pub(super) fn try_prediction(
    context: &DeltaContext<'_>,
    Checked { groups, units }: &Checked,
    relocations: &Relocations,
) -> Result<Option<HashMap<usize, Made>>> {
    let predicted: Vec<usize> =
        (0..groups.len()).filter(|number| groups[*number].is_predicted()).collect();
    let step = predicted.len().div_ceil(TRIED_MAX).max(1);
    let tried: Vec<usize> = predicted.iter().copied().step_by(step).collect();
    let plain = DeltaContext { prediction: None, ..*context };
    let made = in_parallel(context, tried.len(), |at, _| {
        let (group, units) = (&groups[tried[at]], &units[tried[at]]);
        let other = make_one(&plain, &group.with(&plain), units)?;
        Ok((make_one(context, group, units)?, other.len()))
    })?;
    let Some(list) = relocations.encode()? else { return Ok(None) };
    let of_all = |len: usize| len * predicted.len() / tried.len().max(1);
    let with = of_all(made.iter().map(|(made, _)| made.len()).sum()) + list.len();
    let without = of_all(made.iter().map(|(_, other)| other).sum());
    let made = tried.into_iter().zip(made.into_iter().map(|(made, _)| made));
    Ok((with + without / GAIN < without).then(|| made.collect()))
}

/// Makes the pieces but those that are `known`. Many bytes of them go to a temporary file in `dir`.
pub(super) fn make(
    context: &DeltaContext<'_>,
    Checked { groups, units }: &Checked,
    relocations: Option<&Relocations>,
    known: HashMap<usize, Made>,
    dir: &Path,
) -> Result<MadePieces> {
    let known = Mutex::new(known);
    let inodes = context.old.image.superblock().inodes;
    let memory = PieceMemory::new(context.methods.params.len(), relocations, inodes);
    let all = Mutex::new((Spill::new(dir), memory, [0; 3]));
    let pieces = in_parallel(context, groups.len(), |number, _| {
        let known = known.lock().remove(&number);
        let made = match known {
            Some(made) => made,
            None => make_one(context, &groups[number], &units[number])?,
        };
        let bytes = made.piece.encode()?;
        let mut all = all.lock();
        all.1.add(&made.piece, &made.plan);
        all.2.iter_mut().zip(made.counts).for_each(|(count, more)| *count += more);
        all.0.push(&bytes)
    })?;
    let (bytes, memory, [copied, encoded, carried]) = all.into_inner();
    Ok(MadePieces { bytes, pieces, memory, copied, encoded, carried })
}

/// The results of `make` for so many groups.
fn in_parallel<T: Send>(
    context: &DeltaContext<'_>,
    groups: usize,
    make: impl Fn(usize, &mut Encoders) -> Result<T> + Sync,
) -> Result<Vec<T>> {
    let run = &context.options.run;
    ferofs_threads::parallel(
        workers(run),
        groups,
        || Encoders::new(&context.methods.params),
        |encoders, number| {
            run.cancel.check()?;
            make(number, encoders)
        },
    )
}

/// Joins the parts to pieces.
fn groups(context: &DeltaContext<'_>, parts: Vec<Part>) -> Vec<Group> {
    let metadata = MetadataRanges::of(context);
    let mut groups = vec![Group::default()];
    let (mut known, mut referred, mut made, mut copied, mut copies) = (HashSet::new(), 0, 0, 0, 0);
    let mut kind = false;
    for part in parts {
        let len = made_len(context, &part);
        let copy = if let Part::Copy { len, .. } = &part { *len } else { 0 };
        let old = resembles(context, &metadata, &part);
        let new = |known: &HashSet<OldRange>| {
            let new = old.iter().filter(|range| !known.contains(range));
            new.map(|(_, start, end)| end - start).sum::<u64>()
        };
        let is_full = made + len > PIECE_LEN
            || referred + new(&known) > DICTIONARY_MAX
            || copied > COPIED_MAX
            || copies >= COPIES_MAX;
        // Content and metadata are compressed in other forms.
        let own = is_metadata(context, &part);
        let is_other = own != kind && made.min(len) >= MIXED_MAX;
        if is_full || is_other {
            groups.push(Group::default());
            known.clear();
            (referred, made, copied, copies) = (0, 0, 0, 0);
        }
        if made == 0 || len >= MIXED_MAX {
            kind = own;
        }
        (referred, made) = (referred + new(&known), made + len);
        (copied, copies) = (copied + copy, copies + usize::from(copy > 0));
        known.extend(&old);
        let last = groups.len() - 1;
        groups[last].parts.push(part);
        groups[last].old.extend(old);
    }
    groups.retain(|group| !group.parts.is_empty());
    groups
}

/// Whether the bytes of `part` are metadata, or content among it.
fn is_metadata(context: &DeltaContext<'_>, part: &Part) -> bool {
    match part {
        Part::Copy { .. } => false,
        Part::Run(run) => extents(context, run)[0].is_inline,
        Part::Raw { .. } => {
            is_predicted(context, part)
                || matches!(part, Part::Raw { of: RawBytes::Metadata(_), .. })
        }
    }
}

/// Old content that `part` resembles.
fn resembles(context: &DeltaContext<'_>, metadata: &MetadataRanges, part: &Part) -> Vec<OldRange> {
    let (file, offset, len) = match part {
        Part::Copy { .. } => return Vec::new(),
        Part::Run(run) => {
            let first = &extents(context, run)[0];
            let len = content_len(context, run) as u64;
            if context.prediction.is_some() && context.new.content.is_metabox(first) {
                return vec![(PREDICTED_METABOX, first.offset, first.offset + len)];
            }
            let mut found = old_content(context, first.file, first.offset, len);
            let renamed = with_same_bytes(context, run);
            found.extend(
                renamed.filter(|renamed| found.iter().all(|(file, ..)| *file != renamed.0)),
            );
            return found;
        }
        // Among it may be pclusters that are carried.
        Part::Raw { range, of }
            if is_predicted(context, part)
                && (matches!(of, RawBytes::Content(_))
                    || context.new.content.encoded_len(range) == 0) =>
        {
            return vec![predicted(range)];
        }
        Part::Raw { range, of: RawBytes::Content(number) } => {
            let extent = &context.new.content.extents[*number];
            (extent.file, extent.offset + (range.start - extent.at) as u64, range.len() as u64)
        }
        Part::Raw { range, of: RawBytes::Metadata(Some(beside)) } => {
            let end = (beside.end as u64 + BESIDE).min(context.old.len() as u64);
            let beside = (0, (beside.start as u64).saturating_sub(BESIDE), end);
            let predicted = is_predicted(context, part).then(|| predicted(range));
            return predicted.into_iter().chain([beside]).collect();
        }
        Part::Raw { range, of: RawBytes::Metadata(None) } => {
            let predicted = is_predicted(context, part).then(|| predicted(range));
            return predicted.into_iter().chain(metadata.resembles(range)).collect();
        }
    };
    old_content(context, file, offset, len)
}

fn predicted(range: &Range<usize>) -> OldRange {
    (PREDICTED, range.start as u64, range.end as u64)
}

/// Whether `apply` predicts the bytes of `part`: metadata and directories.
fn is_predicted(context: &DeltaContext<'_>, part: &Part) -> bool {
    let is_metadata = match part {
        Part::Raw { of: RawBytes::Metadata(_), .. } => true,
        Part::Raw { of: RawBytes::Content(number), .. } => {
            context.new.content.is_dir(&context.new.content.extents[*number])
        }
        Part::Copy { .. } | Part::Run(_) => false,
    };
    is_metadata && context.prediction.is_some()
}

/// The content of the old file that has the most bytes of `run` in one place, whatever its name is.
fn with_same_bytes(context: &DeltaContext<'_>, run: &Run) -> Option<OldRange> {
    let extents = extents(context, run);
    let (first, last) = (&extents[0], &extents[extents.len() - 1]);
    let equal =
        within(context.equal, first.at..last.at + last.size).max_by_key(|equal| equal.len)?;
    let old = context.old.content.extent_at(equal.old + equal.len / 2)?;
    let new = context.new.content.extent_at(equal.new + equal.len / 2)?;
    let start = old.offset.saturating_sub(new.offset.saturating_sub(first.offset));
    let range =
        context.old.content.around(old.file, start, content_len(context, run) as u64, AROUND);
    Some(range).filter(|(_, start, end)| start < end)
}

/// Old content that these bytes of a new file resemble.
fn old_content(context: &DeltaContext<'_>, file: usize, offset: u64, len: u64) -> Vec<OldRange> {
    let new = &context.new.content;
    let mut found = Vec::new();
    if Some(new.files[file].nid) == context.new.image.superblock().packed {
        let end = offset + len;
        let first =
            new.fragments.partition_point(|fragment| fragment.packed + fragment.len <= offset);
        for fragment in new.fragments[first..].iter().take_while(|fragment| fragment.packed < end) {
            // Without an old version of the file, its content may be in the same place under
            // another name.
            let (old, offset) = match context.old.content.like(&new.files[fragment.file]) {
                Some(old) => (Some(old), fragment.offset),
                None => (context.old.content.like(&new.files[file]), fragment.packed),
            };
            let around = |old| context.old.content.around(old, offset, fragment.len, AROUND / 16);
            found.extend(old.map(around));
        }
        let mut seen = HashSet::new();
        found.retain(|range| seen.insert(*range));
    }
    if found.is_empty()
        && let Some(old) = context.old.content.like(&new.files[file])
    {
        found.push(context.old.content.around(old, offset, len, AROUND));
    }
    found.retain(|(_, start, end)| start < end);
    found
}

impl ImageContent {
    /// The content of file `number` around the bytes at `offset`, as a range of the packed inode if
    /// it is one fragment.
    fn around(&self, number: usize, offset: u64, len: u64, around: u64) -> OldRange {
        let size = self.files[number].size;
        let (start, end) = match size <= WHOLE_MAX.min(around * 6) {
            true => (0, size),
            false => (offset.saturating_sub(around).min(size), (offset + len + around).min(size)),
        };
        let (file, start, end) = self.in_packed(number, start, end);
        (file + 1, start, end)
    }
}

/// The ranges of metadata in both images.
struct MetadataRanges {
    old: Vec<(u64, u64)>,
    new: Vec<(u64, u64)>,
}

impl MetadataRanges {
    fn of(context: &DeltaContext<'_>) -> Self {
        let [old, new] =
            [context.old, context.new].map(|image| image.content.metadata(image.len()));
        Self { old, new }
    }

    /// The old metadata that lies where `range` does in the new metadata, in proportion.
    fn resembles(&self, range: &Range<usize>) -> Vec<OldRange> {
        let total =
            |ranges: &[(u64, u64)]| ranges.iter().map(|(start, end)| end - start).sum::<u64>();
        let position = range.start as u64;
        let before =
            self.new.iter().map(|(start, end)| (*end).min(position).saturating_sub(*start));
        let (before, new_len, old_len) =
            (before.sum::<u64>(), total(&self.new).max(1), total(&self.old));
        let middle = (u128::from(before) * u128::from(old_len) / u128::from(new_len)) as u64;
        let (from, to) = match old_len <= WHOLE_MAX / 2 && self.old.len() <= RANGES_MAX {
            true => (0, old_len),
            false => (middle.saturating_sub(AROUND), middle + range.len() as u64 + AROUND),
        };
        let (mut found, mut at) = (Vec::new(), 0);
        for (start, end) in &self.old {
            let (first, last) = (from.max(at), to.min(at + end - start));
            if first < last {
                found.push((0, start + first - at, start + last - at));
            }
            at += end - start;
        }
        found
    }
}

/// The references to `most` bytes of these ranges, those of a file merged.
fn references(context: &DeltaContext<'_>, ranges: &[OldRange], most: u64) -> Vec<Reference> {
    let mut order = Vec::new();
    let mut by_file: HashMap<usize, Vec<(u64, u64)>> = HashMap::new();
    for (file, start, end) in ranges {
        let own = by_file.entry(*file).or_default();
        if own.is_empty() {
            order.push(*file);
        }
        own.push((*start, *end));
    }
    let (mut found, mut left) = (Vec::new(), most);
    for file in order {
        let mut own = by_file.remove(&file).unwrap_or_default();
        merge(&mut own, GAP);
        for (start, end) in own {
            let len = (end - start).min(left);
            left -= len;
            let reference = match file.checked_sub(1) {
                _ if file == PREDICTED => Reference::Predicted { pos: start, len: len as u32 },
                _ if file == PREDICTED_METABOX => {
                    Reference::PredictedMetabox { pos: start, len: len as u32 }
                }
                None => Reference::Image { pos: start, len: len as u32 },
                Some(file) => {
                    let nid = context.old.content.files[file].nid.get();
                    Reference::File { nid, offset: start, len: len as u32 }
                }
            };
            found.extend((len > 0).then_some(reference));
        }
    }
    found
}

/// A piece before it is stored.
pub(super) struct Made {
    piece: DeltaPiece,
    plan: Plan,
    /// Bytes that are copied, encoded again and carried.
    counts: [u64; 3],
}

impl Made {
    /// Bytes of the plan and the payload: the copies are the same in both forms.
    fn len(&self) -> usize {
        self.piece.plan.len() + self.piece.payload.len()
    }
}

/// Makes a piece, whose runs are made as `units` say, or carried if that is shorter.
fn make_one(context: &DeltaContext<'_>, group: &Group, units: &[RunUnit]) -> Result<Made> {
    let made = make_as(context, group, units)?;
    if units.iter().all(|unit| unit.carried_len() < unit.size.max(1).div_ceil(CARRIED_PART)) {
        return Ok(made);
    }
    let carried = units.iter().map(|unit| {
        let is_kept = unit.carried_len() < unit.size.max(1).div_ceil(CARRIED_PART);
        if is_kept { unit.clone() } else { RunUnit::default() }
    });
    let other = make_as(context, group, &carried.collect::<Vec<_>>())?;
    Ok(if other.len() < made.len() { other } else { made })
}

fn make_as(context: &DeltaContext<'_>, group: &Group, units: &[RunUnit]) -> Result<Made> {
    let (mut items, mut payload, mut copies) = (Vec::new(), Vec::new(), Vec::new());
    let (mut made, mut after, mut raw) = (0, 0, 0);
    let [mut copied, mut encoded, mut carried] = [0; 3];
    let mut units = units.iter();
    let mut old = group.old.clone();
    for part in &group.parts {
        let bytes = match part {
            Part::Copy { old, len } => {
                copies.push(Copy { after, pos: *old as u64, len: *len as u64 });
                (after, copied) = (0, copied + *len as u64);
                continue;
            }
            Part::Raw { range, .. } => {
                carried += context.new.content.encoded_len(range) as u64;
                context.new.read(range.clone())?
            }
            Part::Run(run) => stored_bytes(context, run)?,
        };
        (made, after) = (made + bytes.len(), after + bytes.len() as u64);
        let unit = match part {
            Part::Run(run) => {
                units.next().and_then(|unit| unit.unit.as_ref()).map(|unit| (run, unit))
            }
            _ => None,
        };
        let Some((run, unit)) = unit else {
            carried += if matches!(part, Part::Run(_)) { bytes.len() as u64 } else { 0 };
            payload.extend_from_slice(&bytes);
            raw += bytes.len();
            continue;
        };
        let kept = carried_len(unit);
        (carried, encoded) = (carried + kept, encoded + bytes.len() as u64 - kept);
        if raw > 0 {
            items.push(Item::Raw { len: raw as u32 });
        }
        raw = 0;
        items.push(Item::Unit(unit.clone()));
        let (first, len) = (&extents(context, run)[0], content_len(context, run) as u64);
        let ahead = u64::from(unit.content_len).saturating_sub(len);
        if ahead > 0 {
            old.extend(old_content(context, first.file, first.offset + len, ahead));
        }
        payload.extend(content(context, run, unit.content_len as usize)?);
        let mut at = 0;
        for extent in &unit.extents {
            let own = &bytes[at..][..extent.size as usize];
            at += own.len();
            if extent.kind == ExtentKind::Carried {
                payload.extend_from_slice(own);
            }
        }
    }
    if raw > 0 {
        items.push(Item::Raw { len: raw as u32 });
    }
    if items.is_empty() {
        let piece = DeltaPiece { copies, ..DeltaPiece::default() };
        let plan = Plan { references: Vec::new(), items };
        return Ok(Made { piece, plan, counts: [copied, encoded, carried] });
    }
    let base = Base {
        source: &*context.old.source,
        size: context.old.len() as u64,
        image: &context.old.image,
        prediction: context.prediction.map(|prediction| -> &dyn Predict { prediction }),
        threads: 1,
        longest_extent: u64::MAX,
    };
    // One extent of much content can resemble more.
    let most = if payload.len() > PIECE_LEN { REFERENCES_MAX as u64 } else { DICTIONARY_MAX };
    let mut plan = Plan { references: references(context, &old, most), items };
    let mut dictionary = Vec::new();
    let read = base.read(&plan.references, &mut dictionary, || Ok(()));
    read.map_err(|error| context.old.in_image(error))?;
    let (compressed, delta_len) = shortest(&payload, &dictionary, context.options.level)?;
    if compressed.is_none() {
        plan.references.clear();
    }
    let payload_len = payload.len();
    let piece = DeltaPiece {
        copies,
        plan: plan.encode()?,
        payload_len,
        made_len: made,
        compressed: compressed.is_some(),
        delta_len,
        payload: compressed.unwrap_or(payload),
    };
    Ok(Made { piece, plan, counts: [copied, encoded, carried] })
}
