//! Matchers for tests: a core module in text, made a component of the world `matcher`.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::path::Path;

use wit_component::{ComponentEncoder, StringEncoding, embed_component_metadata};
use wit_parser::Resolve;

/// Addresses of what the module answers. Memory from [`ZEROS`] to [`HEAP`] is zero, and all before is UTF-8.
const METADATA: u32 = 0x400;
const NARROWING: u32 = 0x500;
const REQUIREMENT: u32 = 0x540;
const VERDICTS: u32 = 0x700;
const LENGTH: u32 = VERDICTS + 4;
const COLUMNS: u32 = 0x800;
const ZEROS: u32 = 0x1000;
const HEAP: u32 = 0x8000;

/// Length of the name.
pub const NAME_LENGTH: usize = 1;
/// Number of facts of the claim.
pub const FACTS_LENGTH: usize = 7;
/// Number of columns.
pub const COLUMNS_LENGTH: usize = 9;
/// Whether it spreads.
pub const SPREADS: usize = 10;
/// Number of facts by which claims are siblings.
pub const AMONG_LENGTH: usize = 15;
/// Number of reasons.
pub const REASONS_LENGTH: usize = 17;
/// Whether it scores.
pub const SCORES: usize = 18;
/// Length of the schema of its settings.
pub const SCHEMA_LENGTH: usize = 20;

/// A matcher with one column, a zone, and one reason, `far`. It requires nothing, and rejects rows of zones
/// that begin with `b`.
pub struct Module {
    /// `metadata` as the contract lays it out.
    pub metadata: [u32; 21],
    /// `narrowing`: the length of the requirements, whether there is a bound, its nanos, its reason.
    pub narrowing: [u32; 4],
    /// A requirement: column, operator, reason, bytes of its value, number of its values.
    pub requirement: [u32; 5],
    /// Instructions before an answer of `judge`.
    pub before: &'static str,
    /// Instructions after its verdicts are written.
    pub after: &'static str,
    /// What else the module defines.
    pub fields: &'static str,
    /// Pages of memory.
    pub pages: u32,
}

impl Default for Module {
    fn default() -> Self {
        let mut metadata = [0; 21];
        metadata[..6].copy_from_slice(&[0x100, 7, 0x108, 5, 0x110, 4]);
        metadata[6] = ZEROS;
        metadata[8..10].copy_from_slice(&[COLUMNS, 1]);
        metadata[14] = ZEROS;
        metadata[16..18].copy_from_slice(&[0x340, 1]);
        metadata[19..].copy_from_slice(&[0x120, 17]);
        let (narrowing, requirement) = ([0; 4], [0, 0, 0, 4, 1]);
        Self { metadata, narrowing, requirement, before: "", after: "", fields: "", pages: 1 }
    }
}

impl Module {
    /// The bytes of the component.
    ///
    /// # Panics
    ///
    /// A field is not WebAssembly text.
    pub fn component(&self) -> Vec<u8> {
        let mut module = wat::parse_str(self.text()).unwrap();
        let mut resolve = Resolve::default();
        let contract = Path::new(env!("BINDERY_CHECKOUT")).join("wit/0.2");
        let (package, _) = resolve.push_dir(contract).unwrap();
        let world = resolve.select_world(&[package], Some("matcher")).unwrap();
        embed_component_metadata(&mut module, &resolve, world, StringEncoding::UTF8, false).unwrap();
        ComponentEncoder::default().module(&module).unwrap().encode().unwrap()
    }

    fn text(&self) -> String {
        let Self { before, after, fields, pages, .. } = self;
        let [length, bounded, nanos, reason] = self.narrowing;
        let narrowing = data(NARROWING, &[REQUIREMENT, length, bounded, 0, 0, 0, nanos, 0, reason, 0, 1, 0]);
        let [column, operator, why, bytes, values] = self.requirement;
        let requirement = data(REQUIREMENT, &[column, operator, 0x560, values, why, 0, 0, 0, 0x110, bytes]);
        let metadata = data(METADATA, &self.metadata);
        // Each is `topology` of `zone`.
        let columns = data(COLUMNS, &[2, 0x110, 4].repeat(17));
        let reasons = data(0x340, &[0x118, 3, 0x118, 3].repeat(2));
        format!(
            r#"(module
  (memory (export "memory") {pages})
  (global $heap (mut i32) (i32.const {HEAP}))
  (data (i32.const 0x100) "hostile\001.0.0\00\00\00zone\00\00\00\00far")
  (data (i32.const 0x120) "{{\"type\":\"object\"}}")
  {metadata} {narrowing} {requirement} {columns} {reasons}
  {fields}
  (func (export "cabi_realloc") (param i32 i32 i32 i32) (result i32)
    (local $at i32)
    (local.set $at (i32.and (i32.add (global.get $heap) (i32.const 7)) (i32.const -8)))
    (global.set $heap (i32.add (local.get $at) (local.get 3)))
    (local.get $at))
  (func (export "bindery:policy/match@0.2.0#describe") (result i32) (i32.const {METADATA}))
  (func (export "bindery:policy/match@0.2.0#check") (param i32 i32) (result i32) (i32.const {ZEROS}))
  (func (export "bindery:policy/match@0.2.0#narrow") (param i32 i32 i64 i32 i32 i32) (result i32)
    (i32.const {NARROWING}))
  (func (export "bindery:policy/match@0.2.0#judge")
    (param i32 i32 i64 i32 i32 i32 i32) (param $rows i32) (param i32 i32) (param $texts i32) (param i32)
    (param $columns i32) (param i32 i32 i32) (result i32)
    (local $row i32) (local $text i32)
    {before}
    (loop $next
      (if (i32.lt_u (local.get $row) (local.get $rows)) (then
        (local.set $text (i32.load
          (i32.add (i32.load (local.get $columns)) (i32.mul (local.get $row) (i32.const 4)))))
        (if (local.get $text) (then
          (i32.store
            (i32.add (i32.const {ZEROS}) (i32.mul (local.get $row) (i32.const 4)))
            (i32.eq (i32.const 98) (i32.load8_u (i32.load (i32.add (local.get $texts)
              (i32.mul (i32.sub (local.get $text) (i32.const 1)) (i32.const 8)))))))))
        (local.set $row (i32.add (local.get $row) (i32.const 1)))
        (br $next))))
    (i32.store (i32.const {VERDICTS}) (i32.const {ZEROS}))
    (i32.store (i32.const {LENGTH}) (local.get $rows))
    {after}
    (i32.const {VERDICTS})))"#
        )
    }
}

/// A data segment of words.
fn data(at: u32, words: &[u32]) -> String {
    let bytes = words.iter().flat_map(|word| word.to_le_bytes());
    let bytes: String = bytes.map(|byte| format!("\\{byte:02x}")).collect();
    format!("(data (i32.const {at}) \"{bytes}\")")
}
