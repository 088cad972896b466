package suite

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
)

// Main runs sixteen tests at a time where there are fewer cores, unless -parallel says
// otherwise.
func TestMain_RunsSixteenTestsAtATime(t *testing.T) {
	const childVariable, prefix = "REPRISE_PARALLEL_CHILD", "parallel: "
	if os.Getenv(childVariable) != "" {
		fmt.Println(prefix + flag.Lookup("test.parallel").Value.String())
		return
	}
	t.Parallel()
	for _, c := range []struct{ cores, argument, want string }{
		{"2", "-test.v", "16"},
		{"24", "-test.v", "24"},
		{"2", "-test.parallel=3", "3"},
		{"24", "-test.parallel=3", "3"},
	} {
		child := exec.Command(os.Args[0], "-test.run=^TestMain_RunsSixteenTestsAtATime$", c.argument) //nolint:gosec // it is this program
		child.Env = append(os.Environ(), childVariable+"=1", adapterVariable+"=", "GOMAXPROCS="+c.cores)
		out, err := child.CombinedOutput()
		if err != nil || !strings.Contains(string(out), prefix+c.want+"\n") {
			t.Errorf("on %s cores with %s: %v, and %q is not in\n%s", c.cores, c.argument, err, prefix+c.want, out)
		}
	}
}
