//! Memory access without bounds checks for LZ4: unaligned loads and stores, comparison of bytes,
//! and copies that may write more than asked for. Each unsafe function states its condition.
//! Nothing here depends on the LZ4 format.
#![allow(unsafe_code)]

use std::hint::select_unpredictable;

/// Loads four bytes in little-endian order.
///
/// # Safety
/// `at + 4 <= src.len()`.
#[inline(always)]
pub(super) unsafe fn load32(src: &[u8], at: usize) -> u32 {
    debug_assert!(at + 4 <= src.len());
    // SAFETY: the caller keeps `at + 4` within `src`, so four bytes from `at` are readable; any
    // alignment is accepted.
    let raw = unsafe { src.as_ptr().wrapping_add(at).cast::<u32>().read_unaligned() };
    u32::from_le(raw)
}

/// Loads eight bytes in little-endian order.
///
/// # Safety
/// `at + 8 <= src.len()`.
#[inline(always)]
pub(super) unsafe fn load64(src: &[u8], at: usize) -> u64 {
    debug_assert!(at + 8 <= src.len());
    // SAFETY: the caller keeps `at + 8` within `src`, so eight bytes from `at` are readable; any
    // alignment is accepted.
    let raw = unsafe { src.as_ptr().wrapping_add(at).cast::<u64>().read_unaligned() };
    u64::from_le(raw)
}

/// Whether two bytes are equal.
///
/// # Safety
/// `a < src.len()` and `b < src.len()`.
#[inline(always)]
pub(super) unsafe fn same(src: &[u8], a: usize, b: usize) -> bool {
    debug_assert!(a < src.len() && b < src.len());
    // SAFETY: the caller keeps `a` within `src`.
    let x = unsafe { src.get_unchecked(a) };
    // SAFETY: the caller keeps `b` within `src`.
    let y = unsafe { src.get_unchecked(b) };
    x == y
}

/// How many bytes from `a` on, at most up to `end`, are equal to those from `b` on.
///
/// # Safety
/// `b <= a <= end <= src.len()`.
#[inline(always)]
pub(super) unsafe fn common(src: &[u8], a: usize, b: usize, end: usize) -> usize {
    debug_assert!(b <= a && a <= end && end <= src.len());
    let mut n = 0;
    // Sixteen bytes at a time: most matches end within the first sixteen, and their length needs no
    // further branch.
    while a + n + 16 <= end {
        // SAFETY: `b <= a` and `a + n + 16 <= end <= src.len()` hold for these four loads.
        let low = unsafe { load64(src, a + n) } ^ unsafe { load64(src, b + n) };
        // SAFETY: as above.
        let high = unsafe { load64(src, a + n + 8) } ^ unsafe { load64(src, b + n + 8) };
        if low | high != 0 {
            let (low, high, is_low) = (low.trailing_zeros(), 64 + high.trailing_zeros(), low != 0);
            return n + (select_unpredictable(is_low, low, high) >> 3) as usize;
        }
        n += 16;
    }
    while a + n < end {
        // SAFETY: `a + n < end <= src.len()` and `b <= a`.
        if !unsafe { same(src, a + n, b + n) } {
            break;
        }
        n += 1;
    }
    n
}

/// How many bytes before `a` equal those before `b`, at most `most`.
///
/// # Safety
/// `most <= b <= a <= src.len()`.
#[inline(always)]
pub(super) unsafe fn common_before(src: &[u8], a: usize, b: usize, most: usize) -> usize {
    debug_assert!(most <= b && b <= a && a <= src.len());
    let mut n = 0;
    while b >= n + 8 {
        // SAFETY: `8 <= b - n <= a - n`, and both loads end at `a` or before.
        let diff = unsafe { load64(src, a - n - 8) } ^ unsafe { load64(src, b - n - 8) };
        n += (diff.leading_zeros() >> 3) as usize;
        if diff != 0 || n >= most {
            return n.min(most);
        }
    }
    // SAFETY: `n < most <= b <= a`.
    while n < most && unsafe { same(src, a - n - 1, b - n - 1) } {
        n += 1;
    }
    n
}

/// Copies `src[from..from + len]` to `dst[to..]`; may copy up to 32 more bytes.
///
/// # Safety
/// `from + len + 32 <= src.len()`, `to + len + 32 <= dst.len()`.
#[inline(always)]
pub(super) unsafe fn copy_over(dst: &mut [u8], to: usize, src: &[u8], from: usize, len: usize) {
    debug_assert!(from + len + 32 <= src.len() && to + len + 32 <= dst.len());
    let mut done = 0;
    loop {
        // SAFETY: `done <= len`, and both slices reach 32 bytes beyond `len`, so `from + done` is
        // inside `src`.
        let s = unsafe { src.as_ptr().add(from + done) };
        // SAFETY: likewise for `dst`.
        let d = unsafe { dst.as_mut_ptr().add(to + done) };
        // SAFETY: 32 bytes are readable at `s` and writable at `d`; a shared and an exclusive
        // borrow never overlap.
        unsafe { core::ptr::copy_nonoverlapping(s, d, 32) };
        done += 32;
        if done >= len {
            break;
        }
    }
}

/// Copies `src[from..from + len]` to `dst[to..]`; may write up to 31 bytes beyond `len` if they lie
/// within `dst`.
#[inline(always)]
pub(super) fn copy(dst: &mut [u8], to: usize, src: &[u8], from: usize, len: usize) {
    if to + len + 32 > dst.len() || from + len + 32 > src.len() {
        return dst[to..to + len].copy_from_slice(&src[from..from + len]);
    }
    // SAFETY: both slices reach 32 bytes beyond `len`, as was just checked.
    unsafe { copy_over(dst, to, src, from, len) };
}

/// Copies `buf[from..from + len]` to `buf[to..]` byte by byte in ascending order, so that the
/// source may include bytes that this copy wrote. May write up to 31 bytes beyond `len` if they lie
/// within `buf`. `from` and `to` must differ.
#[inline(always)]
pub(super) fn copy_within(buf: &mut [u8], from: usize, to: usize, len: usize) {
    if from > to || to + len + 32 > buf.len() {
        return copy_within_bounds(buf, from, to, len);
    }
    match to - from {
        // SAFETY: `from < to`, the step is no longer than their distance, and 32 bytes beyond `to +
        // len` are `buf`'s.
        32.. => unsafe { copy_in_steps::<32>(buf, from, to, len) },
        // SAFETY: as above.
        8.. => unsafe { copy_in_steps::<8>(buf, from, to, len) },
        _ => copy_within_bounds(buf, from, to, len),
    }
}

/// As [`copy_within`], but writes exactly `len` bytes.
fn copy_within_bounds(buf: &mut [u8], from: usize, to: usize, len: usize) {
    if from > to {
        return buf.copy_within(from..from + len, to);
    }
    // Where source and target overlap, the length of the copied part doubles with each step.
    let (mut at, end) = (to, to + len);
    while at < end {
        let n = (at - from).min(end - at);
        buf.copy_within(from..from + n, at);
        at += n;
    }
}

/// Copies `N` bytes at a time in ascending order; may write up to `N - 1` bytes beyond `len`.
///
/// # Safety
/// `from + N <= to` and `to + len + N <= buf.len()`.
#[inline(always)]
unsafe fn copy_in_steps<const N: usize>(buf: &mut [u8], from: usize, to: usize, len: usize) {
    debug_assert!(from + N <= to && to + len + N <= buf.len());
    let start = buf.as_mut_ptr();
    let mut done = 0;
    while done < len {
        // SAFETY: `to + done < to + len`, so this is inside `buf`, and `from` is lower.
        let s = unsafe { start.add(from + done) }.cast_const();
        // SAFETY: as above.
        let d = unsafe { start.add(to + done) };
        // SAFETY: N bytes at both ends lie within `buf`, and do not overlap as the two are at least
        // N apart.
        unsafe { core::ptr::copy_nonoverlapping(s, d, N) };
        done += N;
    }
}

/// Stores one byte.
///
/// # Safety
/// `at < dst.len()`.
#[inline(always)]
pub(super) unsafe fn store8(dst: &mut [u8], at: usize, byte: u8) {
    debug_assert!(at < dst.len());
    // SAFETY: the caller keeps `at` within `dst`.
    unsafe { *dst.get_unchecked_mut(at) = byte };
}

/// Stores two bytes in little-endian order.
///
/// # Safety
/// `at + 2 <= dst.len()`.
#[inline(always)]
pub(super) unsafe fn store16(dst: &mut [u8], at: usize, value: u16) {
    debug_assert!(at + 2 <= dst.len());
    // SAFETY: the caller keeps both bytes within `dst`; any alignment is accepted.
    unsafe { dst.as_mut_ptr().wrapping_add(at).cast::<u16>().write_unaligned(value.to_le()) };
}
