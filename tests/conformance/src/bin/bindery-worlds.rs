//! Makes new worlds out of recorded cases. `cargo xtask soak upstream` records what upstream's controller
//! does with them.

#![expect(clippy::print_stdout, reason = "a command prints its result")]

use std::path::PathBuf;

use anyhow::Result;
use bindery_conformance::case;
use bindery_conformance::vary::Worlds;
use clap::Parser;

/// Prints new worlds, one on each line of JSON: recorded worlds with up to four fields changed.
#[derive(Parser)]
struct Arguments {
    /// The same seed makes the same worlds out of the same files. The default is random, and is printed.
    #[arg(long, env = "BINDERY_SEED")]
    seed: Option<u64>,
    /// How many worlds.
    #[arg(long)]
    count: usize,
    /// Corpora: JSON lines, plain or gzip; either of single calls or of cases that settle.
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
}

fn main() -> Result<()> {
    let arguments = Arguments::parse();
    let seed = arguments.seed.unwrap_or_else(rand::random);
    eprintln!("BINDERY_SEED={seed}");
    let mut lines = Vec::new();
    for file in &arguments.files {
        lines.extend(case::lines(file)?);
    }
    for world in Worlds::of(lines.iter().map(|(_, line)| line.as_str()), seed)?.take(arguments.count) {
        println!("{world}");
    }
    Ok(())
}
