//! The experiments. Each module measures for one or more figures of the report, and adds its values to the log.

pub(crate) mod amplification;
pub(crate) mod boot;
pub(crate) mod memory;
pub(crate) mod reads;
pub(crate) mod sizes;

use anyhow::Result;

use super::evaluation::Evaluation;

/// Measures one experiment and adds the results to the log.
pub(crate) type Experiment = fn(&mut Evaluation) -> Result<()>;

/// All experiments, the most important first: a run that ends early leaves out the last ones.
pub(crate) const EXPERIMENTS: [(&str, Experiment); 8] = [
    ("sizes", sizes::sizes),
    ("micro", reads::micro),
    ("io", amplification::amplification),
    ("boot", boot::boot),
    ("memory", memory::memory),
    ("latency", memory::latency),
    ("savings", reads::savings),
    ("strategies", reads::strategies),
];
