//! Encodes the content of a unit as `create` did. Both sides use it: `create` to check that the
//! bytes are the same.

use ferofs_codec::{Compressor, EncodeError, Fit, Params, encoder_time};

use super::plan::{ExtentKind, Unit, UnitExtent};
use crate::error::{Error, PatchFault, Result};
use ferofs_format::units::{to_u64, to_usize};

/// The smallest output that compressors accept, in bytes.
const CAPACITY_MIN: usize = 64;
/// The largest: Linux accepts no larger pcluster.
const CAPACITY_MAX: usize = ferofs_codec::MAX_ENCODED;

/// The work of encoding that any delta may ask for, in nanoseconds as [`encoder_time`] counts them,
/// and that for each MiB of the new image. `create` carries what takes more.
const BASE_WORK: u64 = 3_000_000_000;
const WORK_PER_MIB: u64 = 1_000_000_000;

/// The nanoseconds of encoding that a delta for a new image of so many bytes may ask for.
#[must_use]
pub fn work_limit(new_size: u64) -> u64 {
    BASE_WORK.saturating_add((new_size >> 20).saturating_mul(WORK_PER_MIB))
}

/// The compressors of a patch, each created when it is first used.
pub struct Encoders {
    methods: Vec<Params>,
    compressors: Vec<Option<Box<dyn Compressor>>>,
    /// Nanoseconds of work so far, and at most.
    work: u64,
    limit: u64,
}

fn malformed() -> Error {
    Error::Patch(PatchFault::Malformed("a unit does not encode to what it says"))
}

fn too_much_work() -> Error {
    Error::Patch(PatchFault::Malformed("it takes more work than a new image of this size needs"))
}

impl Encoders {
    /// Compressors with the parameters in `methods`.
    pub fn new(methods: &[Params]) -> Self {
        let compressors = methods.iter().map(|_| None).collect();
        Self { methods: methods.to_vec(), compressors, work: 0, limit: u64::MAX }
    }

    /// The same, which refuse more than so many nanoseconds of work.
    pub(crate) fn limited(methods: &[Params], limit: u64) -> Self {
        Self { limit, ..Self::new(methods) }
    }

    /// Nanoseconds of work since the last call.
    pub fn take_work(&mut self) -> u64 {
        std::mem::take(&mut self.work)
    }

    /// Frees the memory of all compressors.
    pub(crate) fn release(&mut self) {
        self.compressors.fill_with(|| None);
    }

    fn compressor(&mut self, method: u8) -> Result<&mut dyn Compressor> {
        let number = usize::from(method);
        let no_method =
            || Error::Patch(PatchFault::Malformed("it names a compression method that it lacks"));
        let params = self.methods.get(number).ok_or_else(no_method)?;
        let slot = self.compressors.get_mut(number).ok_or_else(no_method)?;
        if slot.is_none() {
            *slot = Some(ferofs_codec::compressor(params)?);
        }
        match slot {
            Some(compressor) => Ok(&mut **compressor),
            None => Err(no_method()),
        }
    }

    /// Appends the bytes of `unit` to `out`. `payload` is its decoded content, and the bytes that
    /// it carries.
    pub(crate) fn encode(&mut self, unit: &Unit, payload: &[u8], out: &mut Vec<u8>) -> Result<()> {
        let (content, mut carried) =
            payload.split_at_checked(to_usize(unit.content_len)).ok_or_else(malformed)?;
        self.begin(unit.method)?;
        let mut at = 0;
        for extent in &unit.extents {
            let consumed = match extent.kind {
                ExtentKind::Carried => {
                    let (bytes, rest) =
                        carried.split_at_checked(to_usize(extent.size)).ok_or_else(malformed)?;
                    carried = rest;
                    out.extend_from_slice(bytes);
                    self.begin(unit.method)?;
                    to_usize(extent.len)
                }
                _ => {
                    self.encode_one(unit.method, extent, content, at, out)?.ok_or_else(malformed)?
                }
            };
            at =
                at.checked_add(consumed).filter(|at| *at <= content.len()).ok_or_else(malformed)?;
        }
        // What follows is content of the next unit: some compressors look ahead.
        if carried.is_empty() { Ok(()) } else { Err(malformed()) }
    }

    /// Starts the content of a unit, or continues after a carried extent.
    pub fn begin(&mut self, method: u8) -> Result<()> {
        self.compressor(method)?.begin();
        Ok(())
    }

    /// Appends one extent of the content that starts at `at`, and returns the bytes of content in
    /// it; `None` if the compressor does not give what `extent` says. `out` has any bytes after
    /// its end then.
    pub fn encode_one(
        &mut self,
        method: u8,
        extent: &UnitExtent,
        content: &[u8],
        at: usize,
        out: &mut Vec<u8>,
    ) -> Result<Option<usize>> {
        let left = self.limit.saturating_sub(self.work);
        let params = self.methods.get(usize::from(method)).copied();
        let compressor = self.compressor(method)?;
        let Some(params) = params.filter(|_| extent.kind != ExtentKind::Stored) else {
            return encode_extent(compressor, extent, content, at, out);
        };
        let count = |compressor: &dyn Compressor| {
            (compressor.trials().map(|(trials, _)| trials), compressor.searched())
        };
        let before = count(compressor);
        compressor.limit(left.checked_div(encoder_time(&params, 0, 0, 1)).unwrap_or(left));
        let consumed = match encode_extent(compressor, extent, content, at, out) {
            Err(Error::Encode(EncodeError::Work)) => return Err(too_much_work()),
            consumed => consumed?,
        };
        let after = count(compressor);
        let difference = |after: Option<u64>, before| Some(after?.saturating_sub(before?));
        let calls = difference(after.0, before.0).unwrap_or(1);
        let bytes = difference(after.1, before.1).unwrap_or(to_u64(consumed.unwrap_or(0)));
        let capacity = to_usize(extent.capacity.max(extent.size));
        self.work = self.work.saturating_add(encoder_time(&params, capacity, calls, bytes));
        if self.work > self.limit { Err(too_much_work()) } else { Ok(consumed) }
    }
}

fn encode_extent(
    compressor: &mut dyn Compressor,
    extent: &UnitExtent,
    content: &[u8],
    at: usize,
    out: &mut Vec<u8>,
) -> Result<Option<usize>> {
    let (len, size, capacity) =
        (to_usize(extent.len), to_usize(extent.size), to_usize(extent.capacity));
    let start = out.len();
    let Some(end) = at.checked_add(len).filter(|end| *end <= content.len()) else {
        return Ok(None);
    };
    let own = content.get(at..end).unwrap_or_default();
    let fit = match extent.kind {
        ExtentKind::Carried => return Ok(None),
        ExtentKind::Stored => {
            if size < len {
                return Ok(None);
            }
            out.extend_from_slice(own);
            out.resize(start.saturating_add(size), 0);
            return Ok(Some(len));
        }
        ExtentKind::Fill => {
            let capacity = if capacity == 0 { size } else { capacity };
            out.resize(start.saturating_add(capacity.clamp(CAPACITY_MIN, CAPACITY_MAX)), 0);
            if at >= content.len() {
                return Ok(None);
            }
            compressor.fit(content, at, out.get_mut(start..).unwrap_or_default())?
        }
        ExtentKind::Exact => {
            if own.is_empty() {
                return Ok(None);
            }
            let capacity = match capacity {
                // More than Zstandard and libdeflate need in the worst case, so that they use their
                // usual path.
                0 => len.saturating_add(len / 8).saturating_add(1024),
                capacity => capacity.min(len),
            };
            out.resize(start.saturating_add(capacity.clamp(CAPACITY_MIN, CAPACITY_MAX)), 0);
            let fit = compressor.fit_exact(own, out.get_mut(start..).unwrap_or_default())?;
            // It was another input, so the next extent starts anew.
            compressor.begin();
            fit
        }
    };
    match fit {
        Fit::Encoded { consumed, produced }
            if produced <= size && (len == 0 || consumed == len) =>
        {
            out.resize(start.saturating_add(size), 0);
            ferofs_codec::right_align(out.get_mut(start..).unwrap_or_default(), produced);
            Ok(Some(consumed))
        }
        Fit::Encoded { .. } | Fit::Incompressible => Ok(None),
    }
}
