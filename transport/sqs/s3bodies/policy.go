package s3bodies

import (
	"encoding/json"
	"fmt"
	"strings"
)

// PolicyFor describes an endpoint for [Policy].
type PolicyFor struct {
	// Partition is that of the bucket: the default is "aws"; "aws-cn" and "aws-us-gov" are others.
	Partition string

	// SendsOnly is whether the program only sends messages, and receives none. A program that receives also needs to
	// store bodies, of the copies of messages for delayed retries and the error queue.
	SendsOnly bool
}

// Policy returns the least IAM policy for a program that stores and reads bodies with the
// configuration, as JSON for aws iam create-policy. It is needed in addition to that of
// sqs.Policy. Its error lists all mistakes in cfg.
//
// If the configuration has the ARN of a key in Config.KMSKey, the policy also allows to
// use the key. If the bucket itself is encrypted with a key of AWS KMS, the program needs
// the same rights: kms:GenerateDataKey to store, kms:Decrypt to read.
func Policy(cfg Config, endpoint PolicyFor) (string, error) {
	if err := cfg.complete(); err != nil {
		return "", fmt.Errorf("s3bodies: policy: %w", err)
	}
	partition := endpoint.Partition
	if partition == "" {
		partition = "aws"
	}
	bucket := "arn:" + partition + ":s3:::" + cfg.Bucket
	objects := bucket + "/"
	if strings.HasPrefix(cfg.Bucket, "arn:") { // an access point
		bucket, objects = cfg.Bucket, cfg.Bucket+"/object/"
	}
	below := func(prefix string) string {
		if prefix == "" {
			return objects + "*"
		}
		return objects + prefix + "/*"
	}
	statements := []statement{{"Store", "Allow", []string{"s3:PutObject"}, []string{below(cfg.KeyPrefix)}}}
	keyActions := []string{"kms:GenerateDataKey"}
	if !endpoint.SendsOnly {
		var read []string
		for _, prefix := range cfg.readPrefixes() {
			read = append(read, below(prefix))
		}
		statements = append(
			statements,
			statement{"Read", "Allow", []string{"s3:GetObject"}, read},
			statement{"NoticeMissing", "Allow", []string{"s3:ListBucket"}, []string{bucket}},
		)
		keyActions = append(keyActions, "kms:Decrypt")
	}
	if strings.HasPrefix(cfg.KMSKey, "arn:") && strings.Contains(cfg.KMSKey, ":key/") {
		statements = append(statements, statement{"Encrypt", "Allow", keyActions, []string{cfg.KMSKey}})
	}
	text, err := json.MarshalIndent(struct {
		Version   string
		Statement []statement
	}{"2012-10-17", statements}, "", "  ")
	return string(text), err
}

// statement is one of an IAM policy.
type statement struct {
	Sid, Effect      string
	Action, Resource []string
}
