//! How much the evaluation measures.

const MIB: u64 = 1 << 20;

/// After this time no new measurement starts.
pub(crate) const MINUTES: u64 = 14;
/// Rounds of the experiments whose figures the page shows, or which vary much; the others have one round.
pub(crate) const ROUNDS: usize = 3;
/// fio stops after this time: a slow system reads less.
pub(crate) const FIO_SECONDS: u32 = 2;
/// Bytes of a large file of real data.
pub(crate) const FILE_SIZE: u64 = 256 * MIB;
/// Bytes of a generated file whose compression saves a given percentage.
pub(crate) const GENERATED_SIZE: u64 = 128 * MIB;
/// Large files of real data, by name.
pub(crate) const DATASETS: [&str; 2] = ["text", "mixed"];
/// Percentages that compression saves.
pub(crate) const SAVINGS: [u64; 5] = [0, 25, 50, 75, 95];
