//! Files, folders and links, as a tar file whose bytes depend on nothing else.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use tar::{Builder, EntryType, Header};

/// Files by their path below a root. All belong to root, and all have the time 0.
#[derive(Default)]
pub(crate) struct Tree(BTreeMap<PathBuf, Entry>);

enum Entry {
    Folder { mode: u32 },
    File { mode: u32, content: Vec<u8> },
    Link { target: PathBuf },
}

impl Tree {
    /// Adds a file that everybody may read.
    pub(crate) fn file(&mut self, path: impl Into<PathBuf>, content: Vec<u8>) {
        self.add(path.into(), Entry::File { mode: 0o644, content });
    }

    /// Adds a file that everybody may read and run.
    pub(crate) fn program(&mut self, path: impl Into<PathBuf>, content: Vec<u8>) {
        self.add(path.into(), Entry::File { mode: 0o755, content });
    }

    /// Adds a symbolic link.
    pub(crate) fn link(&mut self, path: impl Into<PathBuf>, target: impl Into<PathBuf>) {
        self.add(path.into(), Entry::Link { target: target.into() });
    }

    /// Adds a folder like `/tmp`, in which everybody may write.
    pub(crate) fn shared_folder(&mut self, path: impl Into<PathBuf>) {
        self.add(path.into(), Entry::Folder { mode: 0o1777 });
    }

    /// Whether there is an entry at a path.
    pub(crate) fn contains(&self, path: &Path) -> bool {
        self.0.contains_key(path)
    }

    fn add(&mut self, path: PathBuf, entry: Entry) {
        for folder in path.ancestors().skip(1).filter(|folder| *folder != Path::new("")) {
            self.0.entry(folder.to_owned()).or_insert(Entry::Folder { mode: 0o755 });
        }
        self.0.insert(path, entry);
    }

    /// The tar file. A folder precedes its content.
    pub(crate) fn tar(&self) -> Result<Vec<u8>> {
        let mut builder = Builder::new(Vec::new());
        for (path, entry) in &self.0 {
            let mut header = Header::new_gnu();
            header.set_mtime(0);
            header.set_uid(0);
            header.set_gid(0);
            header.set_size(0);
            let added = match entry {
                Entry::Folder { mode } => {
                    header.set_entry_type(EntryType::Directory);
                    header.set_mode(*mode);
                    builder.append_data(&mut header, path, std::io::empty())
                }
                Entry::File { mode, content } => {
                    header.set_mode(*mode);
                    header.set_size(content.len() as u64);
                    builder.append_data(&mut header, path, content.as_slice())
                }
                Entry::Link { target } => {
                    header.set_entry_type(EntryType::Symlink);
                    header.set_mode(0o777);
                    builder.append_link(&mut header, path, target)
                }
            };
            added.with_context(|| format!("cannot pack {}", path.display()))?;
        }
        Ok(builder.into_inner()?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tar_file_lists_each_folder_before_its_content() {
        let mut tree = Tree::default();
        tree.program("bin/program", b"run".to_vec());
        tree.link("bin/alias", "program");
        tree.file("etc/deep/file", b"text".to_vec());
        tree.shared_folder("tmp");
        let tar = tree.tar().unwrap();
        let mut archive = tar::Archive::new(tar.as_slice());
        let seen = archive.entries().unwrap().map(|entry| {
            let entry = entry.unwrap();
            let header = entry.header();
            assert_eq!((header.mtime().unwrap(), header.uid().unwrap(), header.gid().unwrap()), (0, 0, 0));
            (entry.path().unwrap().display().to_string(), header.mode().unwrap())
        });
        let expected = [
            ("bin", 0o755),
            ("bin/alias", 0o777),
            ("bin/program", 0o755),
            ("etc", 0o755),
            ("etc/deep", 0o755),
            ("etc/deep/file", 0o644),
            ("tmp", 0o1777),
        ];
        assert_eq!(seen.collect::<Vec<_>>(), expected.map(|(path, mode)| (path.to_owned(), mode)));
    }
}
