package server

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/reprise-go/reprise/transport"
	"github.com/reprise-go/reprise/transport/sqlserver/internal/dialect"
	"github.com/reprise-go/reprise/transport/sqlserver/internal/sqlexec"
)

// Missing returns an error for each object on which the transport's role lacks rights,
// with the statement that grants them. A right that cannot be checked counts as granted,
// so that no working configuration is refused.
func (srv *Server) Missing(ctx context.Context, needed []dialect.Right) ([]error, error) {
	slices.SortStableFunc(needed, func(a, b dialect.Right) int { // groups them by object
		return strings.Compare(string(a.On)+a.Of.Quoted, string(b.On)+b.Of.Quoted)
	})
	needed = slices.Compact(needed)
	if len(needed) == 0 {
		return nil, nil
	}
	s := srv.Dialect.Missing(needed)
	var lacks []missingGrant
	s.Row = func(scan sqlexec.Scanner) error {
		var role, sequence string
		var n int
		if err := scan(&role, &n, &sequence); err != nil {
			return err
		}
		r := needed[n]
		object := srv.Dialect.Grantable(r)
		if r.On == dialect.OnSequence {
			object = "sequence " + sequence
		}
		lacks = append(lacks, missingGrant{role, r.Verb, object})
		return nil
	}
	err := srv.Read(ctx, s)
	if err != nil && (srv.Transient(err) || ctx.Err() != nil) {
		return nil, err
	}
	return withMissingGrants(lacks), nil
}

// missingGrant is a missing right, as in GRANT.
type missingGrant struct{ role, verb, object string }

// withMissingGrants returns an error for each object.
func withMissingGrants(lacks []missingGrant) (errs []error) {
	slices.SortStableFunc(lacks, func(a, b missingGrant) int { return strings.Compare(a.object, b.object) })
	for len(lacks) > 0 {
		first := lacks[0]
		var verbs []string
		for len(lacks) > 0 && lacks[0].object == first.object {
			if !slices.Contains(verbs, lacks[0].verb) { // the statement may have been repeated
				verbs = append(verbs, lacks[0].verb)
			}
			lacks = lacks[1:]
		}
		list := strings.Join(verbs, ", ")
		errs = append(errs, transport.Permanent(fmt.Errorf("the role %s lacks %s on %s; to fix: grant %s on %s to %s",
			first.role, list, first.object, list, first.object, first.role)))
	}
	return errs
}

// Denied adds the missing rights among needed to the error of a refused statement.
func (srv *Server) Denied(ctx context.Context, cause error, needed []dialect.Right) error {
	missing, err := srv.Missing(ctx, needed)
	if err != nil {
		return cause
	}
	return errors.Join(append([]error{cause}, missing...)...)
}
