// Package report writes the results of a run as text, as Markdown and as pictures.
package report

import (
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	"github.com/reprise-go/reprise/bench/internal/scenario"
	"github.com/reprise-go/reprise/bench/internal/table"
)

// markdownText escapes characters that would end the text of a link.
var markdownText = strings.NewReplacer(`\`, `\\`, "[", `\[`, "]", `\]`)

// Report has the results of a whole run.
type Report struct {
	Date    string
	Machine Machine
	Load    scenario.Load
	Servers []string // descriptions of the used servers
	Results []Result
}

// Result is the result of one scenario.
type Result struct {
	Scenario scenario.Scenario
	Tables   []table.Table
}

// TextHead returns the first line of a run, for a terminal.
func (r Report) TextHead() string { return fmt.Sprintf("%s; %s\n", r.Date, r.Machine) }

// Text returns the tables, for a terminal.
func (r Result) Text() string {
	var b strings.Builder
	fmt.Fprintf(&b, "\n== %s: %s\n", r.Scenario.Name, r.Scenario.About)
	for _, t := range r.Tables {
		b.WriteString(t.Text())
	}
	return b.String()
}

// WriteFile writes the report as Markdown to a file, and its pictures into a folder
// beside it that has the file's name without its ending.
func (r Report) WriteFile(file string) error {
	folder := strings.TrimSuffix(file, filepath.Ext(file))
	errs := []error{os.WriteFile(file, []byte(r.markdown(filepath.Base(folder))), 0o644)}
	for _, done := range r.Results {
		for _, t := range done.Tables {
			if t.Growth == nil {
				continue
			}
			if err := t.Growth.WriteFile(filepath.Join(folder, done.picture()), done.Scenario.Title); err != nil {
				errs = append(errs, fmt.Errorf("plot of %s: %w", done.Scenario.Name, err))
			}
		}
	}
	return errors.Join(errs...)
}

// picture is the name of the file of a scenario's plot.
func (r Result) picture() string { return r.Scenario.Name + ".svg" }

// markdown returns the report for a document whose pictures are in a folder.
func (r Report) markdown(folder string) string {
	var b strings.Builder
	var names []string
	var servers strings.Builder
	for _, line := range r.Servers {
		fmt.Fprintf(&servers, "- %s\n", line)
	}
	for _, done := range r.Results {
		names = append(names, done.Scenario.Name)
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
`, r.Date, r.Machine, servers.String(), table.Thousands(int64(r.Load.Messages)), r.Load.Repetitions, strings.Join(names, ","), r.Load.Messages, r.Load.Repetitions)
	for _, done := range r.Results {
		fmt.Fprintf(&b, "\n## %s\n\n%s\n", done.Scenario.Title, done.Scenario.About)
		for _, t := range done.Tables {
			b.WriteString("\n" + t.Markdown())
			if t.Growth != nil {
				fmt.Fprintf(&b, "\n![%s](%s)\n", markdownText.Replace(t.Growth.Description()), url.PathEscape(folder)+"/"+done.picture())
			}
		}
	}
	return b.String()
}
