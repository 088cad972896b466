// Command links checks the relative links of the Markdown files that git knows: each must lead to a file, and to a
// heading if it names one. It prints the links that do not, and exits with 1 if there are any. Links to other sites are
// not checked: their state is not a property of a commit.
package main

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
)

func main() {
	listed, err := exec.Command("git", "ls-files", "--cached", "--others", "--exclude-standard", "--", "*.md").Output()
	if err != nil {
		fmt.Fprintln(os.Stderr, "links: git ls-files:", err)
		os.Exit(1)
	}
	broken := check(os.DirFS("."), strings.Fields(string(listed)))
	for _, line := range broken {
		fmt.Println(line)
	}
	if len(broken) > 0 {
		os.Exit(1)
	}
}
