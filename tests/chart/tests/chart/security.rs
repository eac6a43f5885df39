//! The tests that the threat model and the operator's guide name exist.

use bindery_chart::{read, root};

#[test]
fn every_test_that_a_document_names_exists() {
    for (document, at_least) in [("SECURITY.md", 20), ("docs/operate.md", 10)] {
        let text = read(document);
        let quoted = text.split('`').skip(1).step_by(2);
        let named: Vec<_> = quoted.filter_map(|text| text.split_once(".rs: ")).collect();
        assert!(named.len() > at_least, "{document}: {named:?}");
        for (file, test) in named {
            let path = root().join(format!("{file}.rs"));
            let source =
                std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
            let declared = source.split("fn ").skip(1).any(|rest| rest.starts_with(&format!("{test}(")));
            assert!(declared, "{document}: {file}.rs has no {test}");
        }
    }
}

#[test]
fn every_row_of_attacks_and_failures_names_a_test() {
    for (document, of, columns) in [
        ("SECURITY.md", "## What a hostile", 3),
        ("SECURITY.md", "## What a failure cannot do", 4),
        ("docs/operate.md", "## When something fails", 4),
    ] {
        let text = read(document);
        let headings: Vec<_> = text.lines().filter(|line| line.starts_with(of)).collect();
        assert!(!headings.is_empty(), "{document} has no {of:?}");
        for heading in headings {
            for row in bindery_chart::table(&text, heading) {
                assert_eq!(row.len(), columns, "{row:?}");
                assert!(row[columns - 1].contains(".rs: "), "{heading}: {row:?}");
            }
        }
    }
}
