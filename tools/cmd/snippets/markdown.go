package main

import (
	"regexp"
	"strings"
)

// A document has the blocks that parse finds in a Markdown file.
type document struct {
	blocks []block
	stray  []int // lines of the markers without a block, from 1
}

// A block is a fenced block of code.
type block struct {
	language   string // the first word after the opening fence
	marker     string // the source that the marker before it names, "" without one
	line       int    // of the opening fence, from 1
	first, end int    // its text is lines[first:end]
	indent     string // of the fence
	text       string // without the indent
}

var (
	marker = regexp.MustCompile(`^\s*<!-- snippet: (\S+) -->\s*$`)
	fence  = regexp.MustCompile("^([ \t]*)(`{3,}|~{3,})[ \t]*([^\\s`]*)[^`]*$")
)

// parse finds the fenced blocks in the lines of a document. Blank lines may be between a marker and its block.
func parse(lines []string) (doc document) {
	pending, pendingLine := "", 0
	for i := 0; i < len(lines); i++ {
		line := strings.TrimRight(lines[i], "\r\n")
		if m := marker.FindStringSubmatch(line); m != nil {
			if pending != "" {
				doc.stray = append(doc.stray, pendingLine)
			}
			pending, pendingLine = m[1], i+1
			continue
		}
		m := fence.FindStringSubmatch(line)
		if m == nil {
			if pending != "" && strings.TrimSpace(line) != "" {
				doc.stray = append(doc.stray, pendingLine)
				pending = ""
			}
			continue
		}
		b := block{language: m[3], marker: pending, line: i + 1, first: i + 1, indent: m[1]}
		pending = ""
		var text strings.Builder
		for i++; i < len(lines) && !closes(lines[i], m[2]); i++ {
			text.WriteString(strings.TrimPrefix(lines[i], b.indent))
		}
		b.end, b.text = min(i, len(lines)), text.String()
		doc.blocks = append(doc.blocks, b)
	}
	if pending != "" {
		doc.stray = append(doc.stray, pendingLine)
	}
	return doc
}

// closes reports whether line ends a block that the fence opened.
func closes(line, opening string) bool {
	line = strings.TrimSpace(line)
	return len(line) >= len(opening) && strings.Trim(line, opening[:1]) == ""
}

// indent puts indent before every line of text that is not empty.
func indent(text, indent string) string {
	if indent == "" {
		return text
	}
	var b strings.Builder
	for line := range strings.Lines(text) {
		if line != "\n" {
			b.WriteString(indent)
		}
		b.WriteString(line)
	}
	return b.String()
}
