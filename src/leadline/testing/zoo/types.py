"""The model types of the survey, and the few settings that small sizes alone do not give.

Left out are types without a model class of their own, those that need libraries which Leadline
does not (timm, detectron2, natten, torchaudio), and a few that no small configuration builds.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

__all__ = ["TYPES"]


def _axes(*sections: int, **more: Any) -> dict[str, Any]:
    """Rotary positions with several axes; their sections fill half of a head."""
    return {
        "rope_parameters": {
            "rope_type": "default",
            "rope_theta": 10000.0,
            "mrope_section": list(sections),
            **more,
        }
    }


_NOTHING: Mapping[str, Any] = {}
_PLAIN = """
aria_text axk1 axk2 bailing_hybrid cohere2_moe cpmant cwm deepseek_v32 exaone_moe flint fuyu
gemma4_unified_assistant gemma4_unified_text glm4_moe_lite glm_moe_dsa gpt-sw3 gpt_neox_japanese
granite_swa granitemoe_swa granitemoeshared hunyuan_v1_moe hy_v3 inkling_text jais2 laguna
mellum mimo_v2_flash minimax_m2 minimax_m3_vl_text ministral3 olmo_hybrid solar_open trocr
vaultgemma youtu
bert-generation data2vec-text gemma4 gemma4_unified roc_bert jina_embeddings_v3 layoutlm mra
tapas ultrabert yoso granite_speech granite_speech_plus bark higgs_audio_v2 mistral4
blip_2_qformer bros canine clip_text_model cohere_compass_vision cosmos3_edge_text dpr
embedding_gemma2 embedding_gemma2_text exaone4_5_vision flava gemma4_vision glm4v_moe_vision
glm4v_vision glm5_next_vision glm_ocr_vision idefics3_vision kimi_k25_vision lxmert markuplm
molmo2_text muse_glimmer_text openai_privacy_filter qwen2_5_vl_vision qwen3_5_moe_vision
qwen3_5_vision qwen3_vl_moe_text qwen3_vl_moe_vision qwen3_vl_text qwen3_vl_vision
qwen4_exp_vision smolvlm_vision splinter tipsv2_text_model tvp vilt
bigbird_pegasus encoder-decoder pegasus_x seamless_m4t seamless_m4t_v2 t5gemma2 canary
cohere_asr moonshine pop2piano speech-encoder-decoder speecht5 fastspeech2_conformer pix2struct
pp_formulanet udop deimv2 nemotron3_5_asr nemotron_asr_streaming parakeet_rnnt parakeet_tdt
pp_doclayout_v3 pp_doclayout_v4 rt_detr rt_detr_v2
bit cvt focalnet hgnet_v2 mobilenet_v1 mobilenet_v2 poolformer pp_lcnet regnet resnet
swiftformer textnet vivit dpt glpn blip-2 instructblip instructblipvideo kosmos-2
chinese_clip_vision_model cosmos3_edge_vision glm_image_vision hunyuan_vl_vision internvl_vision
lightglue mgp-str minicpm_ocr_vision minicpmv4_7_vision mlcd mlcd_vision_model pixio pixtral
pp_ocrv5_mobile_rec pp_ocrv5_server_rec pp_ocrv6_small_det pp_ocrv6_small_rec pp_ocrv6_tiny_rec
qianfan_ocr_vision radio rf_detr sam2 sam3_lite_text_text_model sam3_vision_model sam3_vit_model
sam_hq_vision_model sapiens2 siglip2_vision_model tipsv2_vision_model uvdoc video_llama_3_vision
vit_mae vitdet
data2vec-audio sew sew-d lasr_ctc parakeet_ctc audioflamingo3_encoder encodec gemma3n_audio
gemma4_audio glmasr_encoder lasr_encoder mimi_encoder moss_transcribe_diarize_audio
nemotron3_5_transcribe_asr_audio nemotron3_diarization_audio nemotron_asr_streaming_encoder
parakeet_encoder pocket_tts_audio_tokenizer_encoder qwen2_audio_encoder qwen3_asr_encoder
univnet voxtral_encoder voxtral_realtime_encoder xcodec
gemma3 git got_ocr2 llama4 moshi moss_transcribe_diarize phi4_multimodal modernvbert ultravbert
audioflamingo3 glmasr musicflamingo qwen2_audio qwen3_asr voxtral voxtral_realtime metaclip_2
aria aya_vision cohere2_vision cosmos3_edge cosmos3_omni deepseek_vl deepseek_vl_hybrid
exaone4_5 hyperclovax_vision_v2 idefics idefics2 idefics3 inkling_mm_model internvl kimi_k25
kosmos-2.5 lfm2_vl lighton_ocr llava llava_next llava_next_video llava_onevision minicpm_ocr
minicpmv4_6 minicpmv4_7 minimax_m3_vl mistral3 mistral_large4 muse_glimmer ovis2 qianfan_ocr
qwen3_omni_moe_thinker qwen3_vl qwen3_vl_moe smolvlm step3p7 unlimited_ocr video_llama_3
video_llava vipllava aimv2 altclip bridgetower chinese_clip clipseg clvp groupvit owlv2 owlvit
tipsv2 vision-text-dual-encoder
"""

_AXES = _axes(2, 3, 3)
_HALF = _axes(1, 1, 2, partial_rotary_factor=0.5)

_SPECIAL: Mapping[str, Mapping[str, Any]] = {
    "longcat_flash": {"head_dim": 8},
    "qwen3_5_moe_text": {"num_hidden_layers": 4},
    "qwen3_5_text": {"num_hidden_layers": 4},
    "reformer": {"axial_pos_embds": False},
    "esmc": {"num_key_value_heads": 4},
    "luke": {"entity_vocab_size": 20, "entity_emb_size": 16},
    "glm4v_moe_text": _HALF,
    "glm4v_text": _AXES,
    "glm_image_text": _AXES,
    "glm_ocr_text": _AXES,
    "layoutlmv3": {"input_size": 16, "coordinate_size": 11, "shape_size": 10, "patch_size": 4},
    "lilt": {"hidden_size": 48, "intermediate_size": 96, "num_attention_heads": 4},
    "qwen2_5_vl_text": _AXES,
    "qwen2_vl_text": _AXES,
    "dia": {
        "decoder_config": {
            "cross_hidden_size": 64,
            "cross_head_dim": 16,
            "cross_num_attention_heads": 4,
            "cross_num_key_value_heads": 4,
        }
    },
    "convnext": {"image_size": 64},
    "convnextv2": {"image_size": 64},
    "hiera": {"image_size": [64, 64], "embed_dim": 16, "num_heads": [1, 2, 4, 8]},
    "mobilevit": {"image_size": 64},
    "mobilevitv2": {"image_size": 64},
    "pvt": {"image_size": 64},
    "pvt_v2": {"image_size": 64},
    "dinov3_convnext": {"image_size": 64},
    "sam_vision_model": {"window_size": 2, "global_attn_indexes": [1]},
    "donut-swin": {"embed_dim": 16, "num_heads": [2, 2, 4, 4], "image_size": 64, "window_size": 2},
    "maskformer-swin": {
        "embed_dim": 16,
        "num_heads": [2, 2, 4, 4],
        "image_size": 64,
        "window_size": 2,
    },
    "swin2sr": {
        "embed_dim": 16,
        "num_heads": [2, 2],
        "depths": [2, 2],
        "image_size": 16,
        "window_size": 4,
    },
    "mllama": {"text_config": {"num_hidden_layers": 4, "cross_attention_layers": [1]}},
    "qwen3_5": {"text_config": {"num_hidden_layers": 4}},
    "qwen3_5_moe": {"text_config": {"num_hidden_layers": 4}},
    "siglip2": {"text_config": {"projection_size": 64}},
    "glm46v": {"text_config": _AXES},
    "glm4v": {"text_config": _AXES},
    "glm4v_moe": {"text_config": _HALF},
    "glm_ocr": {"text_config": _AXES},
    "paddleocr_vl": {"text_config": _AXES},
    "paligemma": {"projection_dim": 64},
    "qwen2_5_omni_thinker": {"text_config": _AXES},
    "qwen2_5_vl": {"text_config": _AXES},
    "qwen2_vl": {"text_config": _AXES},
    "glm_image": {"text_config": _AXES},
    "xclip": {
        "vision_config": {
            "mit_hidden_size": 32,
            "mit_intermediate_size": 64,
            "mit_num_attention_heads": 4,
            "mit_num_hidden_layers": 2,
        }
    },
}

TYPES: Mapping[str, Mapping[str, Any]] = {
    **dict.fromkeys(_PLAIN.split(), _NOTHING),
    **_SPECIAL,
}
"""Model type -> settings of its configuration."""
