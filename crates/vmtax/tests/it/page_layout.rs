//! Pages in a browser: on the screen of a phone no table is cut and no label covers another one.

use crate::common::{Busy, Place, skipped};
use crate::history::{put_dataset_with_a_slow_host, put_history_with_a_change, recording};
use std::fs;
use std::path::Path;

/// Width of a phone's screen, px.
const PHONE: u32 = 420;

/// Lists, once all pages are there, what is wrong in each.
const CHECK: &str = r#"addEventListener('load', () => {
  const wrong = [];
  for (const frame of document.querySelectorAll('iframe')) {
    const page = frame.contentDocument, say = text => wrong.push(frame.title + ': ' + text);
    const width = page.scrollingElement.scrollWidth;
    if (page.querySelectorAll('h1').length != 1) say('no page');
    if (width > frame.clientWidth) say('the page is ' + width + ' px wide');
    for (const table of page.querySelectorAll('table')) {
      if (table.offsetParent && table.scrollWidth > table.parentElement.clientWidth + 1)
        say('a table is cut: ' + table.innerText.slice(0, 60));
    }
    for (const svg of page.querySelectorAll('svg')) {
      const place = svg.getBoundingClientRect(), labels = [];
      for (const text of svg.querySelectorAll('text')) {
        const box = text.getBoundingClientRect();
        if (box.width) labels.push({ text: text.textContent, box });
      }
      labels.forEach(({ text, box }, i) => {
        if (box.right > place.right + 16) say('a label ends outside: ' + text);
        for (const other of labels.slice(i + 1)) {
          const x = Math.min(box.right, other.box.right) - Math.max(box.left, other.box.left);
          const y = Math.min(box.bottom, other.box.bottom) - Math.max(box.top, other.box.top);
          if (x > 1 && y > 2) say('labels collide: ' + text + ' and ' + other.text);
        }
      });
    }
  }
  document.getElementById('wrong').textContent = 'CHECKED ' + JSON.stringify(wrong);
});"#;

fn browser() -> Option<&'static str> {
    let folders = std::env::var_os("PATH")?;
    let folders: Vec<_> = std::env::split_paths(&folders).collect();
    let mut names = ["chromium", "chromium-browser", "google-chrome"].into_iter();
    names.find(|name| folders.iter().any(|folder| folder.join(name).exists()))
}

/// A page that has these pages, each as wide as a phone, and checks them.
fn checking(pages: &[(&str, String)]) -> String {
    let frame = |(title, page): &(&str, String)| {
        let source = page.replace('&', "&amp;").replace('"', "&quot;");
        format!(
            "<iframe title=\"{title}\" style=\"width:{PHONE}px;height:900px\" frameborder=0 srcdoc=\"{source}\"></iframe>"
        )
    };
    let frames: String = pages.iter().map(frame).collect();
    format!("<!doctype html>{frames}<pre id=wrong></pre><script>{CHECK}</script>")
}

/// What is wrong in these pages, as the browser prints it.
fn wrong_in(place: &Place, browser: &str, pages: &[(&str, String)]) -> String {
    let page = place.put("pages.html", checking(pages));
    let words = "--headless=new --no-sandbox --disable-gpu --virtual-time-budget=5000 --dump-dom";
    let start = place.program(browser).words(words);
    let start = start
        .arg(format!(
            "--user-data-dir={}",
            place.path("browser").display()
        ))
        .arg(format!("file://{}", page.display()))
        .env("HOME", place.path("home"));
    let dumped = start.start(60).outcome().stdout;
    let (_, wrong) = dumped.split_once(">CHECKED ").expect("checked pages");
    wrong.split("</pre>").next().unwrap_or_default().to_owned()
}

#[test]
fn on_a_phone_no_table_is_cut_and_no_labels_collide() {
    let Some(browser) = browser() else {
        return skipped("no Chromium");
    };
    let place = Place::new();
    let run = recording(&place);
    put_history_with_a_change(&place, &run);
    put_dataset_with_a_slow_host(&place, &run);
    for words in [
        "history cpu.events --dir runs -o history.html",
        "fleet dataset -o fleet.html",
    ] {
        place.vmtax(words).succeeds();
    }
    let traces = Path::new(env!("CARGO_MANIFEST_DIR")).join("../measure/import/tests/data");
    let trace = |name: &str| traces.join(name);
    let import = place.vmtax("import -q -o import");
    import
        .arg(trace("host.txt"))
        .arg(trace("guest.txt"))
        .arg(trace("qemu.log"))
        .succeeds();
    let exits = place.vmtax("import -q -o exits --tsc-mhz 2592");
    exits.arg(trace("vmx.dat")).succeeds();
    let vm = Busy::start(&place, "phone", "");
    let diagnose = format!("diagnose {} -q --duration 2s -o diagnose", vm.name);
    place.vmtax(&diagnose).start(60).outcome().exits(0);
    let read = |title, file: &str| (title, fs::read_to_string(place.path(file)).unwrap());
    let pages = [
        read("history", "history.html"),
        read("fleet", "fleet.html"),
        read("import", "import/report.html"),
        read("exits of a VM", "exits/report.html"),
        read("diagnose", "diagnose/report.html"),
    ];
    assert_eq!(wrong_in(&place, browser, &pages), "[]");
    // A table and labels that are too wide are found.
    let wide = "<!doctype html><h1></h1><div><table><td><div style='width:999px'>figures</div></table></div>\
                <svg width=80 height=20><text y=12>one label</text><text x=9 y=12>another</text></svg>";
    let found = wrong_in(&place, browser, &[("planted", wide.to_owned())]);
    for wrong in [
        "px wide",
        "a table is cut: figures",
        "labels collide: one label and another",
    ] {
        assert!(found.contains(wrong), "{wrong}: {found}");
    }
}
