//! Makes new worlds out of recorded cases; `cargo xtask soak upstream` has upstream's controller make cases
//! of them.

#![expect(clippy::print_stdout, reason = "a command prints its result")]

use std::path::PathBuf;

use anyhow::Result;
use bindery_conformance::case;
use bindery_conformance::vary::Worlds;
use clap::Parser;

/// Prints new worlds, a line of JSON each: recorded ones with up to four fields changed.
#[derive(Parser)]
struct Arguments {
    /// The same seed makes the same worlds of the same files; by default another one each time, which is
    /// printed.
    #[arg(long, env = "BINDERY_SEED")]
    seed: Option<u64>,
    /// How many worlds.
    #[arg(long)]
    count: usize,
    /// Corpora: JSON lines, plain or gzip; of single calls, or of worlds that are settled.
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
