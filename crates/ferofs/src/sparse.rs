//! One byte of marks for each of very many things, with memory for those alone that are marked.

use std::collections::HashMap;
use std::ops::Range;

/// Things to a page.
const PAGE: u64 = 4096;

/// Marks of things that have numbers, in several spaces (devices).
#[derive(Debug, Default)]
pub(crate) struct Marks {
    pages: HashMap<(u16, u64), Box<[u8]>>,
}

impl Marks {
    /// Shows the marks of each thing in `range`, to be changed.
    pub(crate) fn each(&mut self, space: u16, range: Range<u64>, mut change: impl FnMut(u64, &mut u8)) {
        let mut at = range.start;
        while at < range.end {
            let page = at / PAGE;
            let end = range.end.min((page + 1).saturating_mul(PAGE));
            let bytes = self.pages.entry((space, page)).or_insert_with(|| vec![0; 4096].into_boxed_slice());
            for number in at..end {
                // The remainder is below the page's length.
                change(number, &mut bytes[usize::try_from(number % PAGE).unwrap_or(0)]);
            }
            at = end;
        }
    }

    /// The marks of thing `number`.
    #[cfg(test)]
    pub(crate) fn get(&self, space: u16, number: u64) -> u8 {
        let page = self.pages.get(&(space, number / PAGE));
        let at = usize::try_from(number % PAGE).unwrap_or(0);
        page.and_then(|bytes| bytes.get(at)).copied().unwrap_or(0)
    }

    /// All marked things, in order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u16, u64, u8)> + '_ {
        let mut keys: Vec<_> = self.pages.keys().copied().collect();
        keys.sort_unstable();
        keys.into_iter().flat_map(move |(space, page)| {
            let bytes = self.pages.get(&(space, page)).map_or(&[][..], |bytes| bytes);
            let marked = (page * PAGE..).zip(bytes).filter(|(_, marks)| **marks != 0);
            marked.map(move |(number, marks)| (space, number, *marks))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keeps_marks_across_pages() {
        let mut marks = Marks::default();
        marks.each(1, 4090..4100, |number, mark| *mark |= if number == 4096 { 3 } else { 1 });
        marks.each(0, 1 << 59..(1 << 59) + 1, |_, mark| *mark |= 4);
        assert_eq!(marks.get(1, 4096), 3);
        assert_eq!(marks.get(1, 4100), 0);
        assert_eq!(marks.get(0, 4096), 0);
        let all: Vec<_> = marks.iter().collect();
        assert_eq!(all[0], (0, 1 << 59, 4));
        assert_eq!(all.len(), 11);
        assert!(all.is_sorted());
    }
}
