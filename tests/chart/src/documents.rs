//! Tables and commands of documents, which tests compare with the chart.

/// The cells of a table's row, trimmed.
pub type Row = Vec<String>;

/// The rows of the first table below a heading, without the table's head.
pub fn table(document: &str, heading: &str) -> Vec<Row> {
    let mut lines = document.lines().skip_while(|line| *line != heading);
    assert!(lines.next().is_some(), "there is no heading {heading:?}");
    let lines = lines.skip_while(|line| !line.starts_with('|')).take_while(|line| line.starts_with('|'));
    let rows: Vec<_> = lines.skip(2).map(cells).collect();
    assert!(!rows.is_empty(), "there is no table below {heading:?}");
    rows
}

/// The commands of Helm and kubectl in the code blocks of a section.
pub fn commands(document: &str, heading: &str) -> Vec<String> {
    let mut lines = document.lines().skip_while(|line| *line != heading);
    assert!(lines.next().is_some(), "there is no heading {heading:?}");
    let lines = lines.take_while(|line| !line.starts_with("## ")).filter(|line| line.starts_with("    "));
    let commands =
        lines.map(str::trim).filter(|line| line.starts_with("helm ") || line.starts_with("kubectl "));
    commands.map(str::to_owned).collect()
}

fn cells(line: &str) -> Row {
    let escaped = line.trim_matches('|').replace("\\|", "\u{0}");
    escaped.split('|').map(|cell| cell.trim().replace('\u{0}', "|")).collect()
}
