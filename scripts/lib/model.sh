# The segmentation network that a model repository gets.
# shellcheck shell=bash

TRAINED_MODEL=$ROOT/models/segmentation_3d/1/model.pt

# Random weights are made once for each version of the script that makes them.
random_model() { printf '%s/models/random-%s.pt\n' "$CACHE" "$(hash_of "$ROOT/scripts/export_model.py")"; }

# The environments that default_model needs: torch in Python only when weights have to be made.
model_environments() {
  [[ -e $TRAINED_MODEL || -e $(random_model) ]] || printf 'test\n'
}

ensure_random_model() {
  local model
  model=$(random_model)
  [[ -e $model ]] && return
  ensure_environments test
  mkdir -p "$(dirname "$model")"
  say "Writing a network with random weights to $model"
  "$(environment_dir test)/bin/python" "$ROOT/scripts/export_model.py" --random "$model.new" --no-config >&2
  mv "$model.new" "$model"
}

write_model_repository() { # write_model_repository DIR [MODEL.pt]
  local dir=$1 model=${2:-}
  if [[ -z $model ]]; then
    model=$TRAINED_MODEL
    if [[ ! -e $model ]]; then
      ensure_random_model
      model=$(random_model)
      say "Note: no trained network is in models/, so segmentation_3d gets random weights: the masks mean nothing."
    fi
  fi
  [[ -f $model ]] || die "no such network: $model"
  local name
  for name in spleen_seg spleen_seg_native segmentation_3d; do
    mkdir -p "$dir/$name/1"
    cp "$ROOT/models/$name/config.pbtxt" "$dir/$name/"
  done
  cp -r "$ROOT/models/segmentation_3d/configs" "$dir/segmentation_3d/"
  [[ $model -ef $dir/segmentation_3d/1/model.pt ]] || cp "$model" "$dir/segmentation_3d/1/model.pt"
}
