//! The structure that docs/architecture.md promises: within a crate, no file takes names from one that takes names from
//! it, directly or through others. Re-exports are followed to where a name is defined; tests do not count.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use syn::visit::{self, Visit};
use syn::{Attribute, Item, ItemMod, UseTree};

type Module = Vec<String>;

/// Imports, definitions and paths in one module's file, inline modules included.
#[derive(Default)]
struct File {
    /// Names that it re-exports or imports, with the paths they stand for.
    imports: BTreeMap<String, Vec<String>>,
    /// Names that it defines, modules among them.
    defines: BTreeSet<String>,
    /// Paths that it writes out, with those of its imports.
    paths: BTreeSet<Vec<String>>,
}

fn is_test(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        attribute.path().is_ident("cfg")
            && attribute
                .parse_args::<syn::Path>()
                .is_ok_and(|path| path.is_ident("test"))
    })
}

fn flatten(tree: &UseTree, prefix: &[String], found: &mut Vec<(String, Vec<String>)>) {
    let path_with = |name: &syn::Ident| [prefix, &[name.to_string()]].concat();
    match tree {
        UseTree::Path(path) => flatten(&path.tree, &path_with(&path.ident), found),
        UseTree::Name(name) if name.ident == "self" => {
            found.push((prefix.last().cloned().unwrap_or_default(), prefix.to_vec()));
        }
        UseTree::Name(name) => found.push((name.ident.to_string(), path_with(&name.ident))),
        UseTree::Rename(rename) => {
            found.push((rename.rename.to_string(), path_with(&rename.ident)))
        }
        UseTree::Glob(_) => found.push((format!("*{}", prefix.join("::")), prefix.to_vec())),
        UseTree::Group(group) => group
            .items
            .iter()
            .for_each(|item| flatten(item, prefix, found)),
    }
}

impl<'ast> Visit<'ast> for File {
    fn visit_item(&mut self, item: &'ast Item) {
        let (name, attributes) = match item {
            Item::Const(i) => (Some(&i.ident), &i.attrs),
            Item::Enum(i) => (Some(&i.ident), &i.attrs),
            Item::Fn(i) => (Some(&i.sig.ident), &i.attrs),
            Item::Macro(i) => (i.ident.as_ref(), &i.attrs),
            Item::Mod(i) => (Some(&i.ident), &i.attrs),
            Item::Static(i) => (Some(&i.ident), &i.attrs),
            Item::Struct(i) => (Some(&i.ident), &i.attrs),
            Item::Trait(i) => (Some(&i.ident), &i.attrs),
            Item::Type(i) => (Some(&i.ident), &i.attrs),
            Item::Use(i) => (None, &i.attrs),
            Item::Impl(i) => (None, &i.attrs),
            _ => (None, &Vec::new()),
        };
        if is_test(attributes) {
            return;
        }
        self.defines.extend(name.map(ToString::to_string));
        if let Item::Use(using) = item {
            let mut found = Vec::new();
            flatten(&using.tree, &[], &mut found);
            let public = !matches!(using.vis, syn::Visibility::Inherited);
            for (name, path) in found {
                // What is only passed on is no use.
                if !public {
                    self.paths.insert(path.clone());
                }
                self.imports.insert(name, path);
            }
        }
        visit::visit_item(self, item);
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        self.paths.insert(
            path.segments
                .iter()
                .map(|segment| segment.ident.to_string())
                .collect(),
        );
        visit::visit_path(self, path);
    }

    fn visit_item_mod(&mut self, module: &'ast ItemMod) {
        visit::visit_item_mod(self, module);
    }
}

/// The modules of a crate by their paths below `src`.
fn modules(source: &Path) -> BTreeMap<Module, (PathBuf, File)> {
    let mut modules = BTreeMap::new();
    read(source, &source.join("lib.rs"), &Vec::new(), &mut modules);
    read(source, &source.join("main.rs"), &Vec::new(), &mut modules);
    modules
}

fn read(
    folder: &Path,
    path: &Path,
    module: &Module,
    modules: &mut BTreeMap<Module, (PathBuf, File)>,
) {
    let Ok(text) = fs::read_to_string(path) else {
        return;
    };
    let parsed = syn::parse_file(&text).unwrap();
    let mut file = File::default();
    file.visit_file(&parsed);
    let mut children = BTreeSet::new();
    for item in &parsed.items {
        match item {
            Item::Mod(child) if child.content.is_none() && !is_test(&child.attrs) => {
                children.insert(child.ident.to_string());
            }
            // It declares what lies in the folder.
            Item::Macro(table)
                if table
                    .mac
                    .path
                    .segments
                    .last()
                    .is_some_and(|last| last.ident == "workloads") =>
            {
                let paths = fs::read_dir(folder)
                    .into_iter()
                    .flatten()
                    .flatten()
                    .map(|entry| entry.path());
                let names = paths.filter_map(|path| Some(path.file_stem()?.to_str()?.to_owned()));
                children.extend(names.filter(|name| name != "mod"));
            }
            _ => {}
        }
    }
    for name in children {
        let child: Module = [module.as_slice(), std::slice::from_ref(&name)].concat();
        let inner = folder.join(&name);
        read(&inner, &folder.join(format!("{name}.rs")), &child, modules);
        read(&inner, &inner.join("mod.rs"), &child, modules);
    }
    modules.insert(module.clone(), (path.to_path_buf(), file));
}

/// The module whose file defines what `path`, written in `module`, names.
fn definition(
    modules: &BTreeMap<Module, (PathBuf, File)>,
    module: &Module,
    path: &[String],
    depth: u32,
) -> Option<Module> {
    let (first, rest) = path.split_first()?;
    let file = &modules.get(module)?.1;
    let mut at = module.clone();
    match first.as_str() {
        "crate" => at.clear(),
        "self" => {}
        "super" => drop(at.pop()?),
        "Self" => return None,
        name => {
            let below: Module = [at.as_slice(), std::slice::from_ref(first)].concat();
            if modules.contains_key(&below) {
                at = below;
            } else if let Some(import) = file
                .imports
                .get(name)
                .filter(|import| import.first() != Some(first))
            {
                let whole = [import.as_slice(), rest].concat();
                return (depth < 16).then(|| definition(modules, module, &whole, depth + 1))?;
            } else {
                return file.defines.contains(name).then_some(at);
            }
        }
    }
    if rest.is_empty() {
        return None;
    }
    if matches!(first.as_str(), "crate" | "self" | "super") || modules.contains_key(&at) {
        return definition(modules, &at, rest, depth + 1);
    }
    Some(at)
}

/// The files that reach each other, if any do.
fn circle(arrows: &BTreeMap<Module, BTreeSet<Module>>) -> Option<BTreeSet<Module>> {
    let reach = |from: &Module| {
        let mut seen = BTreeSet::new();
        let mut open: Vec<&Module> = arrows.get(from).into_iter().flatten().collect();
        while let Some(next) = open.pop() {
            if seen.insert(next.clone()) {
                open.extend(arrows.get(next).into_iter().flatten());
            }
        }
        seen
    };
    arrows.keys().find_map(|from| {
        let reached = reach(from);
        reached.contains(from).then(|| {
            reached
                .into_iter()
                .filter(|to| reach(to).contains(from))
                .collect()
        })
    })
}

#[test]
fn no_circle_of_files_within_a_crate() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let manifest = fs::read_to_string(root.join("Cargo.toml")).unwrap();
    let listed = manifest
        .lines()
        .filter_map(|line| line.strip_prefix("vmtax-")?.split('"').nth(1));
    let mut said = String::new();
    for krate in listed.chain(["crates/vmtax"]) {
        let modules = modules(&root.join(krate).join("src"));
        assert!(!modules.is_empty(), "{krate} has no source");
        let mut arrows: BTreeMap<Module, BTreeSet<Module>> = BTreeMap::new();
        let mut names: BTreeMap<(Module, Module), BTreeSet<String>> = BTreeMap::new();
        for (module, (_, file)) in &modules {
            for path in &file.paths {
                if let Some(to) = definition(&modules, module, path, 0).filter(|to| to != module) {
                    names
                        .entry((module.clone(), to.clone()))
                        .or_default()
                        .insert(path.join("::"));
                    arrows.entry(module.clone()).or_default().insert(to);
                }
            }
        }
        while let Some(files) = circle(&arrows) {
            said += &format!(
                "{krate}: {} files take names from each other:\n",
                files.len()
            );
            for ((from, to), names) in names
                .iter()
                .filter(|((a, b), _)| files.contains(a) && files.contains(b))
            {
                let show = |module: &Module| {
                    modules[module]
                        .0
                        .strip_prefix(&root)
                        .unwrap()
                        .display()
                        .to_string()
                };
                said += &format!("  {} -> {}: {names:?}\n", show(from), show(to));
            }
            arrows.retain(|from, _| !files.contains(from));
        }
    }
    assert!(said.is_empty(), "{said}");
}

#[test]
fn a_circle_is_found() {
    let folder = std::env::temp_dir().join(format!("vmtax-structure-{}", std::process::id()));
    fs::create_dir_all(&folder).unwrap();
    let put = |name: &str, text: &str| fs::write(folder.join(name), text).unwrap();
    put("lib.rs", "mod a; mod b; mod c; pub use c::Third;");
    put("a.rs", "use crate::b::Second; pub struct First(Second);");
    put(
        "b.rs",
        "pub struct Second; impl Second { fn new(third: crate::Third) {} }",
    );
    put(
        "c.rs",
        "pub struct Third; #[cfg(test)] mod tests { use crate::a::First; }",
    );
    let found = |folder: &Path| {
        let modules = modules(folder);
        let mut arrows: BTreeMap<Module, BTreeSet<Module>> = BTreeMap::new();
        for (module, (_, file)) in &modules {
            let to = file
                .paths
                .iter()
                .filter_map(|path| definition(&modules, module, path, 0));
            arrows
                .entry(module.clone())
                .or_default()
                .extend(to.filter(|to| to != module));
        }
        circle(&arrows).map(|files| files.len())
    };
    assert_eq!(found(&folder), None);
    put("c.rs", "use super::a::First; pub struct Third(First);");
    assert_eq!(found(&folder), Some(3));
    fs::remove_dir_all(&folder).unwrap();
}

/// Conditions that chain `let`, which the oldest Rust does not compile; neither clippy nor a newer compiler says so.
#[derive(Default)]
struct LetChains(usize);

impl<'ast> Visit<'ast> for LetChains {
    fn visit_expr_binary(&mut self, binary: &'ast syn::ExprBinary) {
        let is_let = |side: &syn::Expr| matches!(side, syn::Expr::Let(_));
        self.0 += usize::from(is_let(&binary.left) || is_let(&binary.right));
        visit::visit_expr_binary(self, binary);
    }
}

fn let_chains(text: &str) -> usize {
    let mut found = LetChains::default();
    found.visit_file(&syn::parse_file(text).unwrap());
    found.0
}

#[test]
fn no_condition_chains_let() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut folders = vec![root];
    let mut files = 0;
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap().flatten() {
            let path = entry.path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|kind| kind == "rs") {
                let text = fs::read_to_string(&path).unwrap();
                assert_eq!(let_chains(&text), 0, "{}", path.display());
                files += 1;
            }
        }
    }
    assert!(files > 500, "{files} files");
    assert_eq!(let_chains("fn a() { if let Some(b) = c && b {} }"), 1);
}

/// Crates of a study's end and of its begin: what shows findings, and what measures.
const SHOWS: [&str; 2] = ["vmtax_report", "vmtax_export"];
const MEASURES: [&str; 6] = [
    "vmtax_vmm",
    "vmtax_configuration",
    "vmtax_live",
    "vmtax_vm",
    "vmtax_runner",
    "vmtax_observe",
];

/// The breach of a study's direction in one of its files: options and plans name no page, a page names nothing that measures. What is
/// measured next may be said meanwhile.
fn breach(file: &str, text: &str) -> Option<String> {
    let code = text.split("#[cfg(test)]\nmod tests").next().unwrap();
    let named = |all: &[&'static str]| all.iter().copied().find(|name| code.contains(name));
    let is_options = file.contains("options") || file.contains("candidates");
    match (named(&SHOWS), named(&MEASURES)) {
        (Some(shows), _) if is_options => Some(format!("{file} has options and names {shows}")),
        (Some(shows), Some(measures)) if file != "decisions.rs" => {
            Some(format!("{file} names {shows} and {measures}"))
        }
        _ => None,
    }
}

#[test]
fn a_study_goes_from_its_options_to_its_page() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../studies/src");
    let mut folders = vec![root.clone()];
    let mut breaches = Vec::new();
    while let Some(folder) = folders.pop() {
        for path in fs::read_dir(folder).unwrap().flatten().map(|e| e.path()) {
            if path.is_dir() {
                folders.push(path);
            } else {
                let name = path.strip_prefix(&root).unwrap().display().to_string();
                breaches.extend(breach(&name, &fs::read_to_string(&path).unwrap()));
            }
        }
    }
    assert!(breaches.is_empty(), "{breaches:?}");
    let page_in_options = breach("share/options.rs", "use vmtax_report::Report;");
    let observer_in_page = breach("exec.rs", "use vmtax_report::Report; use vmtax_vmm::Vm;");
    assert!(page_in_options.is_some() && observer_in_page.is_some());
}
