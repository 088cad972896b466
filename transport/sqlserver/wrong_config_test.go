package sqlserver_test

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/transport/sqlserver"
)

// opensWrong returns what opens transports with the configuration's URL, and so with its
// password, changed so that it cannot work. It returns the errors, of New or of Check, or is
// nil where the configuration has no URL.
func opensWrong(cfg sqlserver.Config) func(t testing.TB) []error {
	if cfg.URL == "" {
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
			u, err := url.Parse(cfg.URL)
			if err != nil {
				t.Fatal(err)
			}
			changed := change(u)
			wrong := cfg
			wrong.URL = changed
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			transport, err := sqlserver.New(wrong)
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

// opensMisplaced opens a transport with a text as its URL, the only field that names a server, for
// the conformance suite.
func opensMisplaced(t testing.TB, text string) (configs []any, errs []error) {
	for _, url := range []string{text, strings.Replace(text, "amqp://", "postgres://", 1), strings.Replace(text, "https://", "postgres://", 1)} {
		cfg := sqlserver.Config{URL: url}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		transport, err := sqlserver.New(cfg)
		if err == nil {
			err = errors.Join(errors.New(fmt.Sprint(transport.Warnings(), transport.Describe())), transport.Check(ctx, core.Topology{InputQueue: "any", Queues: []string{"any"}}))
			_ = transport.Close(ctx)
		}
		cancel()
		configs, errs = append(configs, cfg, &cfg), append(errs, err)
	}
	return configs, errs
}
