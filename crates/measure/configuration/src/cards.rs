//! The network cards of a QEMU command line, in its three generations of options.

use super::card_model;
use vmtax_model::ConfiguredNic;
use vmtax_vmm::qemu::arguments::{Arguments, Properties, is_on};

/// The network cards, with the one that a machine of this type has by itself, where no card can be elsewhere (`is_whole`).
pub(super) fn nics(arguments: &Arguments, machine: &str, is_whole: bool) -> Vec<ConfiguredNic> {
    let own = match machine {
        "none" | "microvm" => "",
        machine if machine.contains("q35") => "e1000e",
        _ => "e1000",
    };
    let backends = arguments.by_id("netdev");
    let with_backend = |name: String, model: &str, backend: &Properties| ConfiguredNic {
        name,
        model: model.to_owned(),
        backend: backend.first("type").unwrap_or_default().to_owned(),
        has_vhost: has_vhost(backend),
        limit: None,
    };
    let devices = arguments.properties("device").filter_map(|device| {
        let driver = device.first("driver")?;
        let is_virtio = driver.starts_with("virtio");
        let model =
            card_model(driver).filter(|_| !is_virtio || driver.starts_with("virtio-net"))?;
        let id = device.get("netdev").unwrap_or_default();
        let name = device.get("id").unwrap_or(id).to_owned();
        Some(with_backend(
            name,
            &model,
            backends.get(id).unwrap_or(&Properties::default()),
        ))
    });
    let short = arguments.properties("nic").filter_map(|nic| {
        let given = nic.get("model").unwrap_or(own);
        let model = card_model(given).unwrap_or_else(|| given.to_owned());
        let name = nic.get("id").unwrap_or("-nic").to_owned();
        (nic.first("type")? != "none").then(|| with_backend(name, &model, &nic))
    });
    let old = old_nics(arguments, own);
    let all: Vec<_> = devices.chain(short).chain(old).collect();
    let options = || arguments.options().map(|(option, _)| option);
    let has_none = options().any(|option| ["nodefaults", "net", "netdev", "nic"].contains(&option));
    if !all.is_empty() || has_none || !is_whole || own.is_empty() {
        return all;
    }
    // QEMU's own where the command line has none.
    vec![ConfiguredNic {
        name: "QEMU's default card".to_owned(),
        model: own.to_owned(),
        backend: "user".to_owned(),
        ..ConfiguredNic::default()
    }]
}

/// The cards of `-net nic`, which share a hub with the backends of the other `-net`.
fn old_nics(arguments: &Arguments, own: &str) -> Vec<ConfiguredNic> {
    let is_nic = |net: &Properties| net.first("type") == Some("nic");
    let (nics, backends): (Vec<_>, Vec<_>) = arguments.properties("net").partition(is_nic);
    let backend = match &backends[..] {
        [one] => one.clone(),
        _ => Properties::default(),
    };
    let nics = nics.into_iter().map(|nic| {
        let given = nic.get("model").unwrap_or(own);
        ConfiguredNic {
            name: nic.get("name").unwrap_or("-net nic").to_owned(),
            model: card_model(given).unwrap_or_else(|| given.to_owned()),
            backend: backend.first("type").unwrap_or_default().to_owned(),
            has_vhost: has_vhost(&backend),
            limit: None,
        }
    });
    nics.collect()
}

/// QEMU's default for a tap is not to use it; for the tap that its helper makes (`bridge`) it cannot.
fn has_vhost(backend: &Properties) -> Option<bool> {
    let is_tap = matches!(backend.first("type"), Some("tap" | "bridge"));
    let given = backend.get("vhost").map(|value| is_on(value) == Some(true));
    let has_descriptor = backend.all().any(|(key, _)| key.starts_with("vhostfd"));
    is_tap.then(|| has_descriptor || given.unwrap_or(false))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn old_options_of_cards_are_read() {
        let cards = |machine: &str, line: &str| {
            let nics = nics(
                &vmtax_model::shell_words(line)
                    .unwrap()
                    .into_iter()
                    .collect(),
                machine,
                true,
            )
            .into_iter();
            nics.map(|nic| (nic.model, nic.backend, nic.has_vhost))
                .collect::<Vec<_>>()
        };
        let card = |model: &str, backend: &str, has_vhost| {
            vec![(model.to_owned(), backend.to_owned(), has_vhost)]
        };
        assert_eq!(
            cards("pc", "kvm -net nic,model=virtio -net user"),
            card("virtio", "user", None)
        );
        assert_eq!(
            cards("q35", "kvm -M q35 -net nic -net tap,ifname=t,vhost=on"),
            card("e1000e", "tap", Some(true))
        );
        assert_eq!(
            cards("pc", "kvm -netdev bridge,id=n -device virtio-net,netdev=n"),
            card("virtio", "bridge", Some(false))
        );
        assert_eq!(cards("pc", "kvm -net none"), []);
    }
}
