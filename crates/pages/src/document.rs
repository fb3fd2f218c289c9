//! The frame of a page: head, style, sections, data for scripts.

use std::fmt::Write;

use serde_json::{Value, json};

/// In the head of every page, followed by its kind and a quote: how [`crate::write`] recognises a page that it may overwrite.
pub const GENERATOR: &str = "<meta name=\"generator\" content=\"vitreous ";

/// Nothing may be fetched, whatever a page holds.
const POLICY: &str = "default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src 'unsafe-inline'";
pub(crate) const STYLE: &str = include_str!("style.css");

/// A page as it grows.
#[derive(Clone, Debug)]
pub struct Document {
    title: String,
    kind: String,
    /// HTML under the title.
    lead: String,
    sections: Vec<Section>,
    styles: String,
    scripts: String,
}

/// A section of a page.
#[derive(Clone, Debug)]
pub struct Section {
    /// Its id in the page.
    pub id: String,
    /// Its heading (plain text).
    pub heading: String,
    /// What is under it.
    pub html: String,
}

impl Section {
    /// A section.
    pub fn new(id: &str, heading: &str, html: impl Into<String>) -> Section {
        Section { id: id.to_string(), heading: heading.to_string(), html: html.into() }
    }

    /// For a page that puts it in its place by a script.
    pub fn json(&self) -> Value {
        json!({ "id": self.id, "heading": self.heading, "html": self.html })
    }
}

impl Document {
    /// A page of this title (plain text).
    pub fn new(title: &str) -> Document {
        Document {
            title: title.to_string(),
            kind: String::new(),
            lead: String::new(),
            sections: Vec::new(),
            styles: String::new(),
            scripts: String::new(),
        }
    }

    /// The kind of page, for checks, style and overwriting: `<body data-page="summary">`.
    pub fn kind(&mut self, kind: &str) -> &mut Document {
        self.kind = kind.to_string();
        self
    }

    /// HTML between the title and the first section.
    pub fn lead(&mut self, html: &str) -> &mut Document {
        self.lead.push_str(html);
        self
    }

    /// A section: its id, its heading (plain text), its HTML.
    pub fn section(&mut self, id: &str, heading: &str, html: &str) -> &mut Document {
        self.sections.push(Section::new(id, heading, html));
        self
    }

    /// More sections.
    pub fn sections(&mut self, sections: Vec<Section>) -> &mut Document {
        self.sections.extend(sections);
        self
    }

    /// Rules of style beyond those that every page has.
    pub fn style(&mut self, css: &str) -> &mut Document {
        self.styles.push_str(css);
        self
    }

    /// A script, run when all of the page is there.
    pub fn script(&mut self, code: &str) -> &mut Document {
        let _ = writeln!(self.scripts, "<script>\n\"use strict\";\n{code}</script>");
        self
    }

    /// Data that scripts read as `JSON.parse(document.getElementById(id).textContent)`.
    pub fn data(&mut self, id: &str, value: &Value) -> &mut Document {
        // A "</script>" in a file's name must not end the element.
        let text = value.to_string().replace('<', "\\u003c");
        let _ = writeln!(self.scripts, "<script type=\"application/json\" id=\"{id}\">{text}</script>");
        self
    }

    /// The whole page.
    pub fn finish(&self) -> String {
        let mut page = String::new();
        let (title, kind) = (escape(&self.title), escape(&self.kind));
        let _ = write!(
            page,
            "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n{GENERATOR}{kind}\">\n\
             <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
             <meta http-equiv=\"Content-Security-Policy\" content=\"{POLICY}\">\n\
             <title>{title}</title>\n<style>\n{STYLE}{}</style>\n</head>\n<body data-page=\"{kind}\">\n<main>\n<header>\n<h1>{title}</h1>\n{}\n</header>\n",
            self.styles, self.lead
        );
        if self.sections.len() > 2 {
            page.push_str("<nav aria-label=\"Sections\">");
            for Section { id, heading, .. } in &self.sections {
                let _ = write!(page, "<a href=\"#{id}\">{}</a>", escape(heading));
            }
            page.push_str("</nav>\n");
        }
        for Section { id, heading, html } in &self.sections {
            let heading = escape(heading);
            let _ = write!(page, "<section id=\"{id}\">\n<h2>{heading}</h2>\n{html}\n</section>\n");
        }
        let _ = write!(page, "</main>\n{}</body>\n</html>\n", self.scripts);
        page
    }
}

/// Text as HTML shows it, in elements and in quoted attributes.
pub fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            other => escaped.push(other),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_cannot_leave_their_place() {
        let hostile = "</script></title><img src=x onerror=alert(1)>\"'";
        let mut document = Document::new(hostile);
        document.section("a", hostile, &escape(hostile)).data("d", &serde_json::json!({ "name": hostile }));
        let page = document.finish();
        assert!(!page.contains("<img"));
        assert_eq!(page.matches("</script>").count(), 1);
        assert_eq!(page.matches("</title>").count(), 1);
        let data = page.split("id=\"d\">").nth(1).and_then(|rest| rest.split("</script>").next()).expect("data");
        let read: Value = serde_json::from_str(data).expect("JSON");
        assert_eq!(read["name"], hostile);
    }
}
