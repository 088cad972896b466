package main

import (
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
)

// markdownText escapes characters that would end the text of a link.
var markdownText = strings.NewReplacer(`\`, `\\`, "[", `\[`, "]", `\]`)

// report has the results of a whole run.
type report struct {
	date    string
	machine machine
	load    load
	servers []string // their descriptions
	results []result
}

// result is the result of one scenario.
type result struct {
	scenario scenario
	tables   []table
}

func (r report) textHead() string { return fmt.Sprintf("%s; %s\n", r.date, r.machine) }

func (r result) text() string {
	var b strings.Builder
	fmt.Fprintf(&b, "\n== %s: %s\n", r.scenario.name, r.scenario.about)
	for _, t := range r.tables {
		b.WriteString(t.text())
	}
	return b.String()
}

// write writes the report as Markdown to a file, and its pictures into a folder
// beside it that has the file's name without its ending.
func (r report) write(file string) error {
	folder := strings.TrimSuffix(file, filepath.Ext(file))
	errs := []error{os.WriteFile(file, []byte(r.markdown(filepath.Base(folder))), 0o644)}
	for _, done := range r.results {
		for _, t := range done.tables {
			if t.growth == nil {
				continue
			}
			if err := t.growth.write(filepath.Join(folder, done.picture()), done.scenario.title); err != nil {
				errs = append(errs, fmt.Errorf("plot of %s: %w", done.scenario.name, err))
			}
		}
	}
	return errors.Join(errs...)
}

// picture is the name of the file of a scenario's plot.
func (r result) picture() string { return r.scenario.name + ".svg" }

// markdown returns the report for a document whose pictures are in a folder.
func (r report) markdown(folder string) string {
	var b strings.Builder
	var names []string
	var servers strings.Builder
	for _, line := range r.servers {
		fmt.Fprintf(&servers, "- %s\n", line)
	}
	for _, done := range r.results {
		names = append(names, done.scenario.name)
	}
	fmt.Fprintf(&b, `# Performance

Written by `+"`bench/`"+`; what is not a table is in [performance-notes.md](performance-notes.md).

- Date: %s
- Machine: %s
%s- Samples of %s messages (fewer where it says so), %d of each contender, taken in turn
- To repeat it: `+"`go run ./bench -scenario %s -messages %d -repetitions %d`"+`

Read the ratios: machines differ and are shared. A rate is the median of the samples, its spread how far the slowest and
the fastest sample were from it, a ratio the median of the ratios of neighbouring samples.
Every sample ended with a check that each message was handled exactly as often as it had to be, and that none was left.
`, r.date, r.machine, servers.String(), thousands(int64(r.load.messages)), r.load.repetitions, strings.Join(names, ","), r.load.messages, r.load.repetitions)
	for _, done := range r.results {
		fmt.Fprintf(&b, "\n## %s\n\n%s\n", done.scenario.title, done.scenario.about)
		for _, t := range done.tables {
			b.WriteString("\n" + t.markdown())
			if t.growth != nil {
				fmt.Fprintf(&b, "\n![%s](%s)\n", markdownText.Replace(t.growth.description()), url.PathEscape(folder)+"/"+done.picture())
			}
		}
	}
	return b.String()
}
