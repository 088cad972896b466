package rabbitmq_test

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"testing"
	"time"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/transport/rabbitmq"
)

// opensWrong returns what opens transports with the configuration's URL, and so with its
// password, changed so that it cannot work. It returns the errors, of New or of Check, or is
// nil where the configuration has no URL.
func opensWrong(cfg rabbitmq.Config) func(t testing.TB) []error {
	if len(cfg.URLs) == 0 {
		return nil
	}
	return func(t testing.TB) []error {
		var failures []error
		for _, change := range []func(u *url.URL) string{
			func(u *url.URL) string { u.Host = u.Hostname() + ":1"; return u.String() },
			func(u *url.URL) string { u.User = url.UserPassword("nobody", password(u)); return u.String() },
			func(u *url.URL) string { u.RawQuery = "no_such_option=1"; return u.String() },
			func(u *url.URL) string { u.Scheme = "gopher"; return u.String() },
			func(u *url.URL) string { return "no scheme " + u.String() },
			func(u *url.URL) string { u.Host = u.Hostname() + ":port"; return u.String() },
			func(u *url.URL) string { return u.Scheme + "://" + u.User.String() + "@" + u.Host + "/%zz" },
		} {
			u, err := url.Parse(cfg.URLs[0])
			if err != nil {
				t.Fatal(err)
			}
			changed := change(u)
			wrong := cfg
			wrong.URLs = []string{changed}
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			transport, err := rabbitmq.New(wrong)
			if err == nil { // it connects later
				err = transport.Check(ctx, core.Topology{InputQueue: "any", Queues: []string{"any"}})
				_ = transport.Close(ctx)
			}
			cancel()
			failures = append(failures, err)
		}
		return failures
	}
}

func password(u *url.URL) string {
	text, _ := u.User.Password()
	return text
}

// opensMisplaced opens transports with a text in the fields that name a server, for the
// conformance suite.
func opensMisplaced(cfg rabbitmq.Config) func(t testing.TB, text string) ([]any, []error) {
	return func(t testing.TB, text string) (configs []any, errs []error) {
		inURLs, inManagement := cfg, cfg
		inURLs.URLs = []string{text}
		inManagement.ManagementURL = text
		for _, wrong := range []rabbitmq.Config{inURLs, inManagement} {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			transport, err := rabbitmq.New(wrong)
			if err == nil {
				err = errors.Join(errors.New(fmt.Sprint(transport.Warnings(), transport.Describe())), transport.Check(ctx, core.Topology{InputQueue: "any", Queues: []string{"any"}}))
				_ = transport.Close(ctx)
			}
			cancel()
			configs, errs = append(configs, wrong, &wrong), append(errs, err)
		}
		return configs, errs
	}
}
