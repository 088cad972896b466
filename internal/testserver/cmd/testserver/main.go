//go:build darwin || linux

// Testserver runs a test server in a separate process, until it is interrupted or killed.
//
//	go run ./internal/testserver/cmd/testserver sqs -addr 127.0.0.1:4566 -file journal
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"syscall"

	"github.com/reprise-go/reprise/internal/testserver/sqs"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdout)
	stop()
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

const usage = `Testserver runs a test server until it is interrupted (Ctrl+C). It prints the URL of the server.

Usage:

	testserver sqs [flags]

The servers are:

	sqs    Amazon SQS, and the part of SNS that Reprise uses

"testserver sqs -h" shows the flags.
`

const sqsUsage = `Usage: testserver sqs [flags]

It answers as Amazon SQS and SNS do, for tests. Any credentials are good unless -access-key is set. A client needs the printed URL:

	export AWS_ENDPOINT_URL=http://127.0.0.1:4566 AWS_REGION=us-east-1 AWS_ACCESS_KEY_ID=test AWS_SECRET_ACCESS_KEY=test

The flags are:

`

// run serves until ctx ends. It prints the endpoint once the server answers.
func run(ctx context.Context, args []string, out io.Writer) error {
	if len(args) > 0 && slices.Contains([]string{"-h", "-help", "--help", "help"}, args[0]) {
		_, err := fmt.Fprint(out, usage)
		return err
	}
	if len(args) == 0 {
		return errors.New("testserver: no server is named; to fix: testserver sqs [flags], or testserver -h for help")
	}
	if args[0] != "sqs" {
		return fmt.Errorf("testserver: there is no server %q; to fix: testserver sqs [flags], or testserver -h for help", args[0])
	}
	var cfg sqs.Config
	flags := flag.NewFlagSet("testserver sqs", flag.ContinueOnError)
	flags.Usage = func() {
		fmt.Fprint(flags.Output(), sqsUsage)
		flags.PrintDefaults()
	}
	flags.StringVar(&cfg.Addr, "addr", "127.0.0.1:4566", "`address` to listen on")
	flags.StringVar(&cfg.File, "file", "", "`path` of the journal that keeps everything; without it all is lost at the end")
	flags.StringVar(&cfg.Region, "region", "us-east-1", "region of all ARNs")
	flags.StringVar(&cfg.Account, "account", "123456789012", "account `number` of all ARNs")
	flags.StringVar(&cfg.AccessKey, "access-key", "", "the only access `key` that requests may be signed with")
	flags.BoolVar(&cfg.CancelledPollsReceive, "cancelled-polls-receive", false, "long polls whose client has gone take messages all the same")
	if err := flags.Parse(args[1:]); err != nil {
		return err
	}
	if flags.NArg() > 0 {
		return fmt.Errorf("testserver: unexpected argument %q; to fix: name flags only", flags.Arg(0))
	}
	s, err := sqs.Start(cfg)
	if err != nil {
		return err
	}
	fmt.Fprintln(out, s.URL())
	<-ctx.Done()
	return s.Stop()
}
