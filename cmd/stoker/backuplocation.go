package main

// stoker backup-location: where backups go.

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	agecrypt "filippo.io/age"
	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/kube"
)

// backupLocation is what the command line says of one.
type backupLocation struct {
	url, accessKeyID, secretAccessKey, ca, newIdentity string
	recipients                                         []string
}

func backupLocationCommand(a *app) *cobra.Command {
	var l backupLocation
	c := &cobra.Command{
		Use:   "backup-location NAME --url URL (--recipient AGE... | --new-identity FILE)",
		Short: "Say where backups go",
		Long: `backup-location makes a location of backups, the Secret NAME in ` + name.SystemNamespace + `: an S3-compatible store, or a directory of the datastore
service, such as a volume. Whoever may write there can put a backup in place of another; nobody can read one without an identity of age.

Who opens backups keeps an age identity; Stoker needs only its recipient. --new-identity makes one, in a file that must not exist: keep it where neither
the management cluster nor the location can take it along when they are lost. Without it no backup can be read.`,
		Example: `  stoker backup-location offsite --url 's3://backups/eu-1?endpoint=https://s3.example.com&region=eu-1' \
    --access-key-id stoker --secret-access-key s3.key --new-identity backups.key
  stoker backup-location volume --url file:///backups --recipient age1ql3z7hjy54pw3hyww5ayyfg7zqgvc7w3j2elw8zmrj2kg5sfn9aqmcac8p`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if problems := validation.IsDNS1123Subdomain(args[0]); len(problems) > 0 {
				return usagef("%s: %s", args[0], strings.Join(problems, "; "))
			}
			if l.url == "" {
				return usagef("--url says where backups go: s3://bucket/prefix?endpoint=https://… or file:///directory")
			}
			if (len(l.recipients) == 0) == (l.newIdentity == "") {
				return usagef("either --recipient says who can open backups, or --new-identity in which file to make an identity that can")
			}
			return a.makeLocation(cmd.Context(), args[0], l)
		},
	}
	f := c.Flags()
	f.StringVar(&l.url, "url", "", "`URL`: s3://bucket/prefix?endpoint=https://host&region=…, or file:///directory")
	f.StringVar(&l.accessKeyID, "access-key-id", "", "`ID` of the S3 access key")
	f.StringVar(&l.secretAccessKey, "secret-access-key", "", "`file` with the S3 secret access key; - for standard input")
	f.StringVar(&l.ca, "ca", "", "`file` with the authority of the S3 server's certificate, if it is none that systems trust")
	f.StringArrayVar(&l.recipients, "recipient", nil, "age `recipient` (age1…) who can open backups; may be given several times")
	f.StringVar(&l.newIdentity, "new-identity", "", "`file` to write a new age identity to")
	return c
}

// makeLocation makes the Secret, and an identity if one is wanted.
func (a *app) makeLocation(ctx context.Context, n string, l backupLocation) error {
	data := map[string][]byte{name.KeyLocationURL: []byte(l.url)}
	if l.accessKeyID != "" {
		data[name.KeyLocationAccessKeyID] = []byte(l.accessKeyID)
	}
	for key, file := range map[string]string{name.KeyLocationSecretAccessKey: l.secretAccessKey, name.KeyLocationCA: l.ca} {
		if file == "" {
			continue
		}
		content, err := a.readFile(file)
		if err != nil {
			return err
		}
		data[key] = bytes.TrimSpace(content)
	}
	for _, r := range l.recipients {
		if _, err := agecrypt.ParseRecipients(strings.NewReader(r)); err != nil {
			return usagef("--recipient %s: must be an age recipient, such as age1…", r)
		}
	}
	k, err := a.kube()
	if err != nil {
		return err
	}
	defer k.Close()
	if l.newIdentity != "" {
		recipient, err := makeIdentity(l.newIdentity)
		if err != nil {
			return err
		}
		l.recipients = []string{recipient}
	}
	data[name.KeyLocationRecipients] = []byte(strings.Join(l.recipients, "\n") + "\n")
	err = k.Create(ctx, kube.Secrets, &corev1.Secret{
		TypeMeta:   kube.Secrets.TypeMeta(),
		ObjectMeta: metav1.ObjectMeta{Namespace: name.SystemNamespace, Name: n}, Type: name.BackupLocation, Data: data,
	})
	if err != nil && l.newIdentity != "" {
		err = errors.Join(err, os.Remove(l.newIdentity))
	}
	if apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("there is a Secret %s/%s: delete it first, or choose another name", name.SystemNamespace, n)
	}
	if err != nil {
		return err
	}
	a.sayf(a.out, "location %s made\n", n)
	if l.newIdentity != "" {
		a.sayf(a.out, "%s opens its backups: keep it in a safe place\n", l.newIdentity)
	}
	return nil
}

// makeIdentity writes a new identity to a file that isn't there yet, and returns its recipient.
func makeIdentity(file string) (recipient string, err error) {
	identity, err := agecrypt.GenerateX25519Identity()
	if err != nil {
		return "", err
	}
	f, err := os.OpenFile(file, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return "", err
	}
	_, err = fmt.Fprintf(f, "# public key: %s\n%s\n", identity.Recipient(), identity)
	return identity.Recipient().String(), errors.Join(err, f.Close())
}
