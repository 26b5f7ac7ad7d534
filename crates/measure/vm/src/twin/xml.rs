//! Elements of a domain's XML.

use super::error::TwinError;
use roxmltree::{Document, Node};

/// The domain of a document.
pub(super) fn domain<'a>(document: &'a Document<'a>) -> Result<Node<'a, 'a>, TwinError> {
    let root = document.root_element();
    match root.tag_name().name() {
        "domain" => Ok(root),
        // `virsh snapshot-dumpxml`, `virsh save-image-dumpxml` of old releases.
        _ => child(root, "domain").ok_or_else(|| TwinError::Xml(format!("its root is <{}>", root.tag_name().name()))),
    }
}

/// The first child of that name.
pub(super) fn child<'a, 'input>(node: Node<'a, 'input>, name: &str) -> Option<Node<'a, 'input>> {
    node.children().find(|child| child.is_element() && child.tag_name().name() == name)
}

/// An element's text.
pub(super) fn text_of(node: Node<'_, '_>) -> String {
    node.text().unwrap_or_default().trim().to_owned()
}
