//! `cargo xtask reference`: the page for authors of policies that says what the worlds contain, from `wit/`.

use std::fmt::Write as _;
use std::fs;

use anyhow::{Context as _, Result, bail};
use wit_parser::{Docs, Function, Interface, Resolve, Type, TypeDef, TypeDefKind};

use crate::workspace;

/// The contract that policies are written for.
const CONTRACT: &str = "wit/0.2";
const PAGE: &str = "docs/policies/reference.md";

/// The worlds of policies.
const WORLDS: [&str; 2] = ["matcher", "reclaimer"];
/// The interfaces of policies.
const INTERFACES: [&str; 3] = ["match", "reclaim", "facts"];

const INTRODUCTION: &str = "\
# Reference

`cargo xtask reference` writes this page from [`wit/0.2`](../../wit/0.2), the contract between Bindery and
policies in WebAssembly's interface language.

| in the contract | Rust | JavaScript | Python |
|---|---|---|---|
| a name: `claim-facts` | `claim_facts` | `claimFacts` | `claim_facts` |
| `label(string)` of a variant | `VolumeFact::Label(key)` | `{ tag: 'label', val: key }` | \
`VolumeFact_Label(key)` |
| `owner-name` of a variant | `ClaimFact::OwnerName` | `{ tag: 'owner-name' }` | `ClaimFact_OwnerName()` |
| `not-in` of an enum | `Operator::NotIn` | `'not-in'` | `Operator.NOT_IN` |
| `option<string>` | `Option<String>` | a string or `undefined` | a string or `None` |
| `u64` | `u64` | `BigInt` | `int` |
| the error of a `result` | `Err(text)` | `throw text` | `raise Err(text)` |

";

/// Generate the reference of the worlds of policies from `wit/`.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Change nothing; fail if the page is out of date.
    #[arg(long)]
    check: bool,
}

/// Carries out `cargo xtask reference`.
pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let path = workspace::root().join(PAGE);
    let fresh = page()?;
    if fs::read_to_string(&path).is_ok_and(|present| present == fresh) {
        return Ok(());
    }
    if arguments.check {
        bail!("{PAGE} is out of date: run `cargo xtask reference`");
    }
    fs::write(&path, fresh).with_context(|| format!("cannot write {}", path.display()))
}

fn page() -> Result<String> {
    let mut resolve = Resolve::default();
    let (package, _) = resolve.push_dir(workspace::root().join(CONTRACT))?;
    let package = &resolve.packages[package];
    let mut page = INTRODUCTION.to_owned();
    for name in WORLDS {
        let world = package.worlds.get(name).with_context(|| format!("{CONTRACT} has no world {name}"))?;
        write!(page, "## World `{name}`\n\n{}", paragraph(&resolve.worlds[*world].docs))?;
    }
    for name in INTERFACES {
        let id = package.interfaces.get(name);
        let id = id.with_context(|| format!("{CONTRACT} has no interface {name}"))?;
        page += &interface(&resolve, name, &resolve.interfaces[*id])?;
    }
    // The page ends with one newline.
    Ok(page.trim_end().to_owned() + "\n")
}

fn interface(resolve: &Resolve, name: &str, interface: &Interface) -> Result<String> {
    let mut text = format!("## Interface `{name}`\n\n{}", paragraph(&interface.docs));
    for function in interface.functions.values() {
        let signature = signature(resolve, function)?;
        write!(text, "### Function `{}`\n\n    {signature}\n\n{}", function.name, paragraph(&function.docs))?;
    }
    for (name, id) in &interface.types {
        text += &definition(resolve, name, &resolve.types[*id])?;
    }
    Ok(text)
}

fn signature(resolve: &Resolve, function: &Function) -> Result<String> {
    let mut parameters = Vec::new();
    for parameter in &function.params {
        parameters.push(format!("{}: {}", parameter.name, type_name(resolve, &parameter.ty)?));
    }
    let result = match &function.result {
        Some(result) => format!(" -> {}", type_name(resolve, result)?),
        None => String::new(),
    };
    Ok(format!("{}({}){result}", function.name, parameters.join(", ")))
}

/// A record, a variant or an enum as a table. A type of another interface is described there.
fn definition(resolve: &Resolve, name: &str, definition: &TypeDef) -> Result<String> {
    let mut rows = Vec::new();
    let kind = match &definition.kind {
        TypeDefKind::Record(record) => {
            for field in &record.fields {
                let kind = type_name(resolve, &field.ty)?;
                rows.push(format!("`{}` | `{kind}` | {}", field.name, sentence(&field.docs)));
            }
            "Record"
        }
        TypeDefKind::Variant(variant) => {
            for case in &variant.cases {
                let value = match &case.ty {
                    Some(value) => format!("`{}`", type_name(resolve, value)?),
                    None => String::new(),
                };
                rows.push(format!("`{}` | {value} | {}", case.name, sentence(&case.docs)));
            }
            "Variant"
        }
        TypeDefKind::Enum(cases) => {
            rows.extend(
                cases.cases.iter().map(|case| format!("`{}` | | {}", case.name, sentence(&case.docs))),
            );
            "Enum"
        }
        TypeDefKind::Type(_) => return Ok(String::new()),
        other => bail!("the type {name} is a {}, which this page cannot describe yet", other.as_str()),
    };
    let rows: String = rows.iter().map(|row| format!("| {row} |\n")).collect();
    let docs = paragraph(&definition.docs);
    Ok(format!("### {kind} `{name}`\n\n{docs}| name | type | meaning |\n|---|---|---|\n{rows}\n"))
}

/// A type as the contract writes it.
fn type_name(resolve: &Resolve, written: &Type) -> Result<String> {
    let id = match written {
        Type::Id(id) => *id,
        Type::Bool => return Ok("bool".to_owned()),
        Type::U32 => return Ok("u32".to_owned()),
        Type::U64 => return Ok("u64".to_owned()),
        Type::String => return Ok("string".to_owned()),
        other => bail!("the type {other:?} is new in {CONTRACT}: name it in crates/xtask/src/reference.rs"),
    };
    let definition = &resolve.types[id];
    if let Some(name) = &definition.name {
        return Ok(name.clone());
    }
    let or_none = |inner: &Option<Type>| inner.map_or(Ok("_".to_owned()), |inner| type_name(resolve, &inner));
    Ok(match &definition.kind {
        TypeDefKind::List(inner) => format!("list<{}>", type_name(resolve, inner)?),
        TypeDefKind::Option(inner) => format!("option<{}>", type_name(resolve, inner)?),
        TypeDefKind::Result(result) => format!("result<{}, {}>", or_none(&result.ok)?, or_none(&result.err)?),
        other => bail!("a {} without name is new in {CONTRACT}", other.as_str()),
    })
}

/// A comment as text with an empty line after it.
fn paragraph(docs: &Docs) -> String {
    docs.contents.as_deref().map_or(String::new(), |text| format!("{}\n\n", text.trim_end()))
}

/// A comment in one line.
fn sentence(docs: &Docs) -> String {
    let words = docs.contents.as_deref().unwrap_or_default().split_whitespace();
    words.collect::<Vec<_>>().join(" ").replace('|', "\\|")
}
