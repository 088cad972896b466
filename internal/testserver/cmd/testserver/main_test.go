//go:build darwin || linux

package main

import (
	"bufio"
	"context"
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
)

func TestRun_ServesUntilItsEnd(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	out, in := io.Pipe()
	ended := make(chan error, 1)
	go func() {
		ended <- run(ctx, []string{"sqs", "-addr", "127.0.0.1:0", "-file", filepath.Join(t.TempDir(), "journal")}, in)
		in.Close()
	}()
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatalf("%v, %v", err, <-ended)
	}
	response, err := http.Post(strings.TrimSpace(line), "", strings.NewReader("")) //nolint:noctx // it is answered at once
	if err != nil {
		t.Fatal(err)
	}
	response.Body.Close()
	http.DefaultClient.CloseIdleConnections()
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

func TestRun_Help(t *testing.T) {
	t.Parallel()
	for _, arg := range []string{"-h", "--help", "help"} {
		var out strings.Builder
		if err := run(t.Context(), []string{arg}, &out); err != nil || !strings.Contains(out.String(), "testserver sqs [flags]") {
			t.Errorf("%s: %v, %s", arg, err, out.String())
		}
	}
}

func TestRun_RefusesArguments(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{nil, {"other"}, {"sqs", "more"}, {"sqs", "-nonsense"}} {
		if err := run(t.Context(), args, io.Discard); err == nil {
			t.Errorf("%q is taken", args)
		}
	}
}
