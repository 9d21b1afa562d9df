//! How the numbers of one kind change from the old image to the new one: positions of inodes,
//! addresses of content. Layout: docs/PATCH_FORMAT.md.

use super::super::columns::{ColumnReader, Columns};
use crate::error::Result;
use ferofs_format::units::to_u64;

/// Numbers of the old image and those of the new one in their place. All numbers from a start up
/// to the next one are shifted by the same distance; those before the first start stay.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Shifts(Vec<(u64, i64)>);

impl Shifts {
    /// The shifts of these pairs of an old number and a new one. Of several pairs with the same old
    /// number, the first counts.
    #[must_use]
    pub fn of(mut pairs: Vec<(u64, u64)>) -> Self {
        pairs.sort_by_key(|(old, _)| *old);
        pairs.dedup_by_key(|(old, _)| *old);
        let mut shifts: Vec<(u64, i64)> = Vec::new();
        for (old, new) in pairs {
            let shift = new.wrapping_sub(old).cast_signed();
            if shifts.last().map_or(0, |(_, last)| *last) != shift {
                shifts.push((old, shift));
            }
        }
        Self(shifts)
    }

    /// The new number.
    #[must_use]
    pub fn apply(&self, old: u64) -> u64 {
        let after = self.0.partition_point(|(start, _)| *start <= old);
        let shift = after.checked_sub(1).and_then(|before| self.0.get(before));
        old.wrapping_add_signed(shift.map_or(0, |(_, shift)| *shift))
    }

    /// How many there are.
    #[must_use]
    pub const fn count(&self) -> usize {
        self.0.len()
    }

    /// Whether all numbers stay.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn encode(&self, columns: &mut Columns) {
        columns.push(to_u64(self.0.len()));
        columns.push_deltas(self.0.iter().map(|(start, _)| *start));
        columns.push_deltas(self.0.iter().map(|(_, shift)| shift.cast_unsigned()));
    }

    pub(super) fn decode(columns: &mut ColumnReader<'_>) -> Result<Self> {
        let count = columns.count()?;
        let (starts, shifts) = (columns.deltas(count)?, columns.deltas(count)?);
        let shifts = shifts.into_iter().map(u64::cast_signed);
        Ok(Self(starts.into_iter().zip(shifts).collect()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn numbers_between_two_starts_have_the_same_shift() {
        let shifts = Shifts::of(vec![(10, 10), (20, 25), (21, 26), (40, 35), (20, 99)]);
        assert_eq!(shifts.0, [(20, 5), (40, -5)]);
        let old = [0, 10, 19, 20, 30, 39, 40, 1000];
        assert_eq!(old.map(|old| shifts.apply(old)), [0, 10, 19, 25, 35, 44, 35, 995]);
        assert_eq!(Shifts::default().apply(7), 7);
    }

    proptest! {
        #[test]
        fn each_pair_is_kept(pairs in proptest::collection::btree_map(any::<u64>(), any::<u64>(), 0..50)) {
            let shifts = Shifts::of(pairs.clone().into_iter().collect());
            for (old, new) in pairs {
                prop_assert_eq!(shifts.apply(old), new);
            }
            let mut columns = Columns::default();
            shifts.encode(&mut columns);
            let bytes = columns.into_bytes();
            let mut reader = ColumnReader::new(&bytes, "wrong");
            prop_assert_eq!(Shifts::decode(&mut reader).unwrap(), shifts);
            reader.finish().unwrap();
        }
    }
}
